"""Repositories and the webhook deliveries that speak of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from service.store.tables import Repository, WebhookDelivery


def by_name(session: Session, *, name: str) -> Repository | None:
    """The repository that a forge calls `name` ("owner/name"), whatever the case."""
    exact = session.scalar(select(Repository).where(Repository.name == name))
    if exact is not None:
        return exact
    return session.scalar(select(Repository).where(Repository.name.ilike(name.replace("_", r"\_").replace("%", r"\%"))))


def all_of_them(session: Session) -> Sequence[Repository]:
    """Every repository, by name."""
    return session.scalars(select(Repository).order_by(Repository.name)).all()


def insert_repository(session: Session, **values: Any) -> Repository | None:
    """Insert a repository; None if the name is taken."""
    statement = insert(Repository).values(**values).on_conflict_do_nothing(index_elements=["name"])
    made = session.scalar(statement.returning(Repository.id))
    return None if made is None else session.get_one(Repository, made)


def insert_delivery(session: Session, *, guid: str, values: Mapping[str, Any]) -> int | None:
    """Store a delivery; None if this GUID was stored before (then there is nothing to do)."""
    statement = insert(WebhookDelivery).values(guid=guid, **values).on_conflict_do_nothing(index_elements=["guid"])
    return session.scalar(statement.returning(WebhookDelivery.id))


def lock_unhandled(session: Session, *, delivery_id: int) -> WebhookDelivery | None:
    """The delivery, locked, if nobody has finished with it; waits for whoever is at it."""
    return session.scalar(
        select(WebhookDelivery)
        .where(WebhookDelivery.id == delivery_id, WebhookDelivery.handled_at.is_(None))
        .with_for_update()
    )


def unhandled(session: Session, *, received_before: datetime, limit: int = 100) -> Sequence[int]:
    """Ids of deliveries that were stored but never finished, oldest first."""
    return session.scalars(
        select(WebhookDelivery.id)
        .where(WebhookDelivery.handled_at.is_(None), WebhookDelivery.received_at < received_before)
        .order_by(WebhookDelivery.id)
        .limit(limit)
    ).all()
