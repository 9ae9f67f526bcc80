"""The runners' API: register, claim, heartbeat, report. JSON in the shapes of `service.contract`."""

from __future__ import annotations

import re
from typing import Annotated

import structlog
from flask import Blueprint, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from sqlalchemy.orm import Session

from service.contract import Heartbeat, RunnerRegistration, RunOrder, RunReport
from service.domain.reports import ReportRefusedError
from service.store import audit, runners
from service.store.tables import Runner
from service.usecases import dispatch, ingest
from service.usecases.ingest import Receipt
from service.web import auth
from service.web.errors import ProblemError
from service.web.parts import REPORT_BODY_BYTES, as_json, parse, refused, services
from service.wiring import follow_up

log = structlog.get_logger(__name__)
blueprint = Blueprint("runner_api", __name__, url_prefix="/api/v1")

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,99}")
MAX_TEXT = 512
MAX_BIGINT = 2**63 - 1
RECEIPT_STATUS = {Receipt.STORED: 201, Receipt.RETRYING: 201, Receipt.ALREADY: 200, Receipt.SUPERSEDED: 409}


class Claim(BaseModel):
    """Which run a runner wants: the one it was rung for, or any of its pool."""

    model_config = ConfigDict(extra="forbid")
    run_id: Annotated[int, Field(ge=0, le=MAX_BIGINT)] | None = None


_CLAIM = TypeAdapter(Claim)
_ORDER = TypeAdapter(RunOrder)
_HEARTBEAT = TypeAdapter(Heartbeat)
_REPORT = TypeAdapter(RunReport)
_REGISTRATION = TypeAdapter(RunnerRegistration)


@blueprint.post("/runners/register")
def register() -> Response:
    """Trade a one-time token for a runner's own. The service keeps only its hash."""
    parts = services()
    now = parts.clock()
    with parts.sessions.begin() as session:
        registrar = auth.require_registrar(session, settings=parts.settings, now=now)
        wanted = parse(_REGISTRATION)
        _check_registration(wanted, pool=registrar.pool)
        if registrar.token_id is not None and not runners.use_once(session, token_id=registrar.token_id, now=now):
            raise ProblemError(409, "Conflict", "This one-time token has been used; create another for this runner.")
        token = auth.new_token("runner")
        runner = runners.upsert_runner(
            session,
            name=wanted.name,
            values={
                "pool": wanted.pool,
                "token_hash": auth.hash_token(token),
                "device": wanted.device,
                "comparable_key": wanted.comparable_key,
                "facts": dict(wanted.facts),
                "heartbeat_at": now,
            },
        )
        audit.record(
            session,
            actor=wanted.name,
            action="register",
            subject=("runner", runner.id),
            after={"pool": wanted.pool, "device": wanted.device},
        )
    log.info("runner_registered", runner=wanted.name, pool=wanted.pool, device=wanted.device)
    return as_json({"runner_id": runner.id, "token": token}, status=201)


def _check_registration(wanted: RunnerRegistration, *, pool: str | None) -> None:
    faults = [
        {"field": field, "message": "letters, digits and . _ @ - only, at most 100"}
        for field, value in (("name", wanted.name), ("pool", wanted.pool))
        if not NAME.fullmatch(value)
    ]
    texts = {"device": wanted.device, "comparable_key": wanted.comparable_key, **wanted.facts}
    faults += [
        {"field": field, "message": f"must be printable text of at most {MAX_TEXT} characters"}
        for field, value in texts.items()
        if len(value) > MAX_TEXT or "\x00" in value or "\x00" in field
    ]
    if faults:
        raise refused(faults)
    if pool is not None and wanted.pool != pool:
        raise ProblemError(403, "Forbidden", f"This token registers runners of the pool {pool} only.")


@blueprint.post("/runners/claim")
def claim() -> Response:
    """Give a runner a run of its pool, or 204."""
    parts = services()
    with parts.sessions.begin() as session:
        runner = auth.require_runner(session)
        wanted = parse(_CLAIM)
        order = dispatch.claim(
            session, runner=runner, run_id=wanted.run_id, now=parts.clock(), lease_s=parts.settings.lease_s
        )
    if order is None:
        return Response(status=204)
    log.info("run_claimed", run=order.run_id, commit=order.sha, attempt=order.attempt, runner=runner.name)
    return Response(_ORDER.dump_json(order), content_type="application/json")


@blueprint.post("/runs/<int:run_id>/heartbeat")
def heartbeat(run_id: int) -> Response:
    """Extend a lease; `hold` false tells the runner to stop."""
    parts = services()
    with parts.sessions.begin() as session:
        runner = auth.require_runner(session)
        beat = parse(_HEARTBEAT)
        _check_run_id(run_id, beat.run_id)
        counts_fit = all(0 <= count < 2**31 for count in (beat.done, beat.total))
        if len(beat.stage) > MAX_TEXT or "\x00" in beat.stage or not counts_fit:
            raise refused(
                [{"field": "stage", "message": f"must be text of at most {MAX_TEXT} characters, with counts from 0"}]
            )
        hold = dispatch.heartbeat(session, runner=runner, beat=beat, now=parts.clock(), lease_s=parts.settings.lease_s)
    return as_json({"hold": hold})


@blueprint.post("/runs/<int:run_id>/report")
def report(run_id: int) -> Response:
    """Store a report; a second copy changes nothing."""
    parts = services()
    with parts.sessions.begin() as session:
        runner = auth.require_runner(session)
        handed_in = parse(_REPORT, limit_bytes=REPORT_BODY_BYTES)
        _check_run_id(run_id, handed_in.run_id)
        outcome = _store(session, runner, handed_in)
    receipt = outcome.receipt
    log.info("report_received", run=run_id, attempt=handed_in.attempt, runner=runner.name, receipt=receipt.value)
    if receipt is Receipt.SUPERSEDED:
        raise ProblemError(409, "Conflict", "Another attempt owns this run; drop this report.")
    if receipt is Receipt.STORED:
        parts.bell.later("service.after_report", {"run_id": run_id})
    if receipt is Receipt.RETRYING:
        parts.bell.ring(outcome.pool, run_id)
    follow_up(parts, outcome.aftermath)
    return as_json({"status": receipt.value}, status=RECEIPT_STATUS[receipt])


def _store(session: Session, runner: Runner, handed_in: RunReport) -> ingest.Outcome:
    parts = services()
    try:
        return ingest.store_report(
            session, handed_in, runner=runner, now=parts.clock(), max_attempts=parts.settings.max_attempts
        )
    except ingest.UnknownRunError as error:
        raise ProblemError(404, "Not Found", f"There is no run {handed_in.run_id}.") from error
    except ReportRefusedError as error:
        log.warning("report_refused", run=handed_in.run_id, runner=runner.name, error=str(error))
        raise refused([{"field": fault.field, "message": fault.message} for fault in error.faults]) from error


def _check_run_id(in_path: int, in_body: int) -> None:
    if in_path != in_body:
        raise refused([{"field": "run_id", "message": f"the path says {in_path}, the body {in_body}"}])
    if in_path > MAX_BIGINT:
        raise ProblemError(404, "Not Found", "There is no such run.")
