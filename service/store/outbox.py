"""The outbox in SQL: rows are claimed by a conditional update, so one sender holds each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import and_, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from service.domain.states import NotificationEvent, NotificationState
from service.store.tables import Channel, Notification

STUCK_AFTER = timedelta(minutes=2)  # a sender that died between claim and result


def channels_of(session: Session, *, repository_id: int) -> Sequence[Channel]:
    """Return the enabled channels of a repository."""
    return session.scalars(
        select(Channel).where(Channel.repository_id == repository_id, Channel.enabled).order_by(Channel.id)
    ).all()


def insert_notification(
    session: Session, *, channel_id: int, regression_id: int, event: str, occurrence: int, now: datetime
) -> bool:
    """Put one message into the outbox; False if it is there already."""
    inserted = session.execute(
        insert(Notification)
        .values(
            channel_id=channel_id,
            regression_id=regression_id,
            event=event,
            occurrence=occurrence,
            next_attempt_at=now,
        )
        .on_conflict_do_nothing()
        .returning(Notification.id)
    )
    return inserted.first() is not None


def due(session: Session, *, now: datetime, limit: int = 50) -> Sequence[int]:
    """Return the ids of messages whose time has come, in order of creation, stuck ones included."""
    return session.scalars(
        select(Notification.id)
        .where(
            or_(
                and_(Notification.state == NotificationState.PENDING, Notification.next_attempt_at <= now),
                and_(Notification.state == NotificationState.SENDING, Notification.sending_since < now - STUCK_AFTER),
            )
        )
        .order_by(Notification.id)
        .limit(limit)
    ).all()


def claim(session: Session, *, notification_id: int, now: datetime) -> bool:
    """Take a due message for sending; False if somebody else has it."""
    claimed = session.execute(
        update(Notification)
        .where(
            Notification.id == notification_id,
            or_(
                and_(Notification.state == NotificationState.PENDING, Notification.next_attempt_at <= now),
                and_(Notification.state == NotificationState.SENDING, Notification.sending_since < now - STUCK_AFTER),
            ),
        )
        .values(state=NotificationState.SENDING, sending_since=now, attempts=Notification.attempts + 1)
        .returning(Notification.id)
    )
    return claimed.first() is not None


def thread_of(session: Session, *, channel_id: int, regression_id: int) -> str | None:
    """Return the other side's id of the message that opened the regression in this channel."""
    return session.scalars(
        select(Notification.external_id)
        .where(
            Notification.channel_id == channel_id,
            Notification.regression_id == regression_id,
            Notification.event == NotificationEvent.OPENED,
            Notification.state == NotificationState.SENT,
        )
        .order_by(Notification.occurrence.desc())
    ).first()


def earlier_unsent(session: Session, *, notification: Notification) -> bool:
    """Whether an earlier message of the same thread still waits: replies never overtake their opening."""
    return (
        session.scalars(
            select(Notification.id).where(
                Notification.channel_id == notification.channel_id,
                Notification.regression_id == notification.regression_id,
                Notification.id < notification.id,
                Notification.state.in_([NotificationState.PENDING, NotificationState.SENDING]),
            )
        ).first()
        is not None
    )


def mark_sent(session: Session, *, notification_id: int, external_id: str, now: datetime) -> None:
    """Record that the other side has the message."""
    session.execute(
        update(Notification)
        .where(Notification.id == notification_id)
        .values(state=NotificationState.SENT, sent_at=now, external_id=external_id, error=None)
    )


def mark_failed(session: Session, *, notification_id: int, error: str, retry_at: datetime | None) -> None:
    """Record a failure: tried again at `retry_at`, or for good when that is None."""
    state = NotificationState.FAILED if retry_at is None else NotificationState.PENDING
    values: dict[str, object] = {"state": state, "error": error}
    if retry_at is not None:
        values["next_attempt_at"] = retry_at
    session.execute(update(Notification).where(Notification.id == notification_id).values(values))
