"""POST /webhooks/github: the door through which pushes come in.

The order of checks: size, headers, repository (404), signature over the raw body (401), payload (400). 202 is
answered only after the delivery is committed; the fetch and the queueing happen before it when they are quick, and
are finished by a task otherwise.
"""

from __future__ import annotations

from urllib.parse import parse_qs

import structlog
from flask import Blueprint, Response, request
from sqlalchemy.exc import SQLAlchemyError

from service.adapters import github
from service.store import repositories
from service.store.tables import Repository
from service.usecases.intake import Push, finish_delivery, receive
from service.usecases.ports import MirrorError
from service.web.errors import ProblemError
from service.web.parts import WEBHOOK_BODY_BYTES, as_json, raw_body, services

MAX_GUID = 200

log = structlog.get_logger(__name__)
blueprint = Blueprint("webhooks", __name__, url_prefix="/webhooks")


@blueprint.post("/github")
def receive_github() -> Response:
    """Take one delivery of GitHub."""
    body = raw_body(WEBHOOK_BODY_BYTES)
    event = request.headers.get(github.EVENT_HEADER, "")
    guid = request.headers.get(github.DELIVERY_HEADER, "")
    if not event or not guid or len(guid) > MAX_GUID or not guid.isprintable():
        raise ProblemError(
            400, "Bad Request", f"A delivery needs the headers {github.EVENT_HEADER} and {github.DELIVERY_HEADER}."
        )
    payload = _payload(body)
    repository = _authenticate(body, payload)
    if event == "ping":
        return as_json({"status": "pong"})
    if event != "push":
        return as_json({"status": "ignored", "event": event[:100]})
    return _take_push(repository, payload, guid=guid)


def _payload(body: bytes) -> bytes:
    """The JSON of a delivery; a webhook set to the form content type carries it in the field `payload`."""
    if request.mimetype != "application/x-www-form-urlencoded":
        return body
    try:
        return parse_qs(body.decode("ascii"), max_num_fields=10)["payload"][0].encode()
    except (KeyError, ValueError) as error:
        raise ProblemError(400, "Bad Request", "The form has no field `payload`.") from error


def _authenticate(body: bytes, payload: bytes) -> Repository:
    try:
        name = github.parse_repository(payload)
    except github.PayloadError as error:
        raise ProblemError(400, "Bad Request", f"This is not a delivery of GitHub: {error}") from error
    with services().sessions() as session:
        repository = repositories.by_name(session, name=name)
    if repository is None:
        raise ProblemError(404, "Not Found", "This repository is not measured here; see `kernelwatch repo add`.")
    if not github.signature_is_valid(repository.webhook_secret, body, request.headers.get(github.SIGNATURE_HEADER)):
        raise ProblemError(401, "Unauthorized", f"{github.SIGNATURE_HEADER} does not sign this body.")
    return repository


def _take_push(repository: Repository, payload: bytes, *, guid: str) -> Response:
    try:
        push = github.parse_push(payload)
    except github.PayloadError as error:
        raise ProblemError(400, "Bad Request", f"This is not a push: {error}") from error
    parts = services()
    with parts.sessions.begin() as session:
        delivery_id = receive(
            session,
            repository=repository,
            guid=guid,
            event="push",
            push=Push(ref=push.ref, before=push.before, after=push.after, forced=push.forced),
            now=parts.clock(),
        )
    if delivery_id is None:
        return as_json({"status": "already received"})
    runs = _finish_or_hand_over(delivery_id)
    return as_json({"status": "accepted", "delivery": delivery_id, "runs": runs}, status=202)


def _finish_or_hand_over(delivery_id: int) -> list[int] | None:
    """Queue the runs now if the fetch is quick; else leave it to a task. The delivery is stored either way."""
    parts = services()
    try:
        handled = finish_delivery(
            parts.sessions,
            delivery_id=delivery_id,
            mirrors=parts.mirrors,
            bell=parts.bell,
            clock=parts.clock,
            fetch_timeout_s=parts.settings.webhook_fetch_s,
        )
    except (MirrorError, SQLAlchemyError) as error:
        log.warning("delivery_left_to_task", delivery=delivery_id, error=str(error))
        parts.bell.later("service.handle_delivery", {"delivery_id": delivery_id})
        return None
    log.info("delivery_handled", delivery=delivery_id, runs=[run for _, run in handled.rings], note=handled.note)
    return [run for _, run in handled.rings]
