"""Runners and bearer tokens. Tokens are random and long, so a plain SHA-256 is a safe thing to store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from service.store.tables import ApiToken, Runner


def runner_by_token(session: Session, *, token_hash: str) -> Runner | None:
    """The runner that this token belongs to."""
    return session.scalar(select(Runner).where(Runner.token_hash == token_hash))


def token_by_hash(session: Session, *, token_hash: str) -> ApiToken | None:
    """The API token with this hash, valid or not."""
    return session.scalar(select(ApiToken).where(ApiToken.token_hash == token_hash))


def use_once(session: Session, *, token_id: int, now: datetime) -> bool:
    """Spend a one-time token; False if it was spent before. Of two at once only one succeeds."""
    spent = session.scalar(
        update(ApiToken)
        .where(ApiToken.id == token_id, ApiToken.used_at.is_(None))
        .values(used_at=now)
        .returning(ApiToken.id)
        .execution_options(synchronize_session=False)
    )
    return spent is not None


def upsert_runner(session: Session, *, name: str, values: dict[str, Any]) -> Runner:
    """Register a runner; one that registers again under its name gets the new token, and the old one ends."""
    statement = insert(Runner).values(name=name, **values)
    statement = statement.on_conflict_do_update(index_elements=["name"], set_=values)
    runner_id = session.scalars(statement.returning(Runner.id)).one()
    return session.get_one(Runner, runner_id, populate_existing=True)


def touch(session: Session, *, runner_id: int, now: datetime) -> None:
    """Note a runner's sign of life."""
    session.execute(
        update(Runner)
        .where(Runner.id == runner_id)
        .values(heartbeat_at=now)
        .execution_options(synchronize_session=False)
    )
