"""GitHub's webhooks: their signature and their payload.

Source for both: GitHub, "Validating webhook deliveries" and "Webhook events and payloads: push".
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

SIGNATURE_HEADER = "X-Hub-Signature-256"
DELIVERY_HEADER = "X-GitHub-Delivery"
EVENT_HEADER = "X-GitHub-Event"

NO_CONTROLS = r"^[^\x00-\x1f]*$"
Model = TypeVar("Model", bound=BaseModel)
Sha = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]


class PayloadError(ValueError):
    """The body is not what GitHub sends."""


class RepositoryPayload(BaseModel):
    """The part of `repository` that we read."""

    model_config = ConfigDict(extra="ignore")
    full_name: str = Field(min_length=1, max_length=300, pattern=NO_CONTROLS)


class Envelope(BaseModel):
    """What every event has."""

    model_config = ConfigDict(extra="ignore")
    repository: RepositoryPayload


class PushPayload(Envelope):
    """What we read of a push."""

    ref: str = Field(min_length=1, max_length=1024, pattern=NO_CONTROLS)
    before: Sha
    after: Sha
    forced: bool = False


def sign(secret: str, body: bytes) -> str:
    """The signature header's value for `body`: HMAC-SHA256 in hex, with its scheme."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def signature_is_valid(secret: str, body: bytes, header: str | None) -> bool:
    """Whether `header` signs the raw `body`; the comparison takes the same time wherever they differ."""
    return hmac.compare_digest(sign(secret, body).encode(), (header or "").encode(errors="replace"))


def parse_repository(body: bytes) -> str:
    """The repository's full name in any event's body."""
    return _parse(Envelope, body).repository.full_name


def parse_push(body: bytes) -> PushPayload:
    """A push event's body."""
    return _parse(PushPayload, body)


def _parse(model: type[Model], body: bytes) -> Model:
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise PayloadError(f"{where}: {first['msg']}") from error
