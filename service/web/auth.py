"""Bearer tokens: who may do what.

Tokens are random and long; the database keeps only their SHA-256, and comparisons take constant time. Reading is open
(put the service behind a proxy to close it); every write needs a token: a runner's own for claiming and reporting, a
one-time token for registering, an API token of scope `write` (or the admin token) for the rest.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime

from flask import request
from pydantic import SecretStr
from sqlalchemy.orm import Session

from service.settings import Settings
from service.store import runners
from service.store.tables import ApiToken, Runner
from service.web.errors import ProblemError

PREFIX = "Bearer "
TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Registrar:
    """What a valid registration token allows; `token_id` is None for the shared token of the settings."""

    token_id: int | None
    pool: str | None


def new_token(kind: str) -> str:
    """A fresh token; the prefix lets people and secret scanners recognise it."""
    return f"kw_{kind}_{secrets.token_urlsafe(TOKEN_BYTES)}"


def hash_token(token: str) -> str:
    """What the database keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def bearer() -> str:
    """The request's token; 401 without one."""
    header = request.headers.get("Authorization", "")
    token = header.removeprefix(PREFIX).strip()
    if not header.startswith(PREFIX) or not token or len(token) > 500:
        raise ProblemError(401, "Unauthorized", "Send your token as `Authorization: Bearer <token>`.")
    return token


def require_runner(session: Session) -> Runner:
    """The runner that makes this request."""
    token_hash = hash_token(bearer())
    runner = runners.runner_by_token(session, token_hash=token_hash)
    if runner is not None and hmac.compare_digest(runner.token_hash, token_hash):
        return runner
    if _valid_token(session, token_hash) is not None:
        raise ProblemError(403, "Forbidden", "This token is not a runner's; register the runner first.")
    raise ProblemError(401, "Unauthorized", "This token is not known, or it has been replaced.")


def require_writer(session: Session, *, settings: Settings, now: datetime) -> str:
    """The name of whoever may change things with this token."""
    token = bearer()
    if _equals(settings.admin_token, token):
        return "admin"
    found = _valid_token(session, hash_token(token), now=now)
    if found is not None and found.scope == "write":
        return found.name
    if found is not None or runners.runner_by_token(session, token_hash=hash_token(token)) is not None:
        raise ProblemError(403, "Forbidden", "This token may not change anything here; it needs the scope `write`.")
    raise ProblemError(401, "Unauthorized", "This token is not known, has expired or was revoked.")


def require_registrar(session: Session, *, settings: Settings, now: datetime) -> Registrar:
    """What the registration token of this request allows; 409 if it was used before."""
    token = bearer()
    if _equals(settings.runner_token, token):
        return Registrar(token_id=None, pool=None)
    found = _valid_token(session, hash_token(token), now=now)
    if found is None:
        raise ProblemError(401, "Unauthorized", "This registration token is not known, has expired or was revoked.")
    if found.scope != "register":
        raise ProblemError(403, "Forbidden", "Registering a runner needs a token of scope `register`.")
    if found.used_at is not None:
        raise ProblemError(409, "Conflict", "This one-time token has been used; create another for this runner.")
    return Registrar(token_id=found.id, pool=found.pool)


def name_of_token(session: Session, *, token: str, settings: Settings, now: datetime) -> str | None:
    """Who signs in to the dashboard with this token, or None if it does not allow changes."""
    if _equals(settings.admin_token, token):
        return "admin"
    found = _valid_token(session, hash_token(token), now=now)
    return found.name if found is not None and found.scope == "write" else None


def _valid_token(session: Session, token_hash: str, *, now: datetime | None = None) -> ApiToken | None:
    found = runners.token_by_hash(session, token_hash=token_hash)
    if found is None or not hmac.compare_digest(found.token_hash, token_hash) or found.revoked_at is not None:
        return None
    if now is not None and found.expires_at is not None and found.expires_at <= now:
        return None
    return found


def _equals(secret: SecretStr | None, token: str) -> bool:
    """Constant-time comparison with a token of the settings; one that is not set equals nothing."""
    expected = secret.get_secret_value() if secret else ""
    return hmac.compare_digest(hash_token(expected), hash_token(token)) and bool(expected)
