"""The outbox in SQL: rows are claimed by a conditional update, so one sender holds each.

Messages that a channel holds back (`digest_at`) are claimed together, and the first claim fixes which belong together:
a second try after a crash says the same under the same key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, any_, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from service.domain.states import NotificationEvent, NotificationState
from service.store.tables import Channel, Notification, Repository

STUCK_AFTER = timedelta(minutes=2)  # a sender that died between claim and result
WAITING = (NotificationState.PENDING, NotificationState.SENDING)
BAD_NEWS = (NotificationEvent.OPENED, NotificationEvent.REOPENED, NotificationEvent.ATTRIBUTED)


def channels_of(session: Session, *, repository_id: int) -> Sequence[Channel]:
    """Return the enabled channels of a repository."""
    return session.scalars(
        select(Channel).where(Channel.repository_id == repository_id, Channel.enabled).order_by(Channel.id)
    ).all()


def channels_of_pool(session: Session, *, pool: str) -> Sequence[Channel]:
    """Return the enabled channels of every repository that is measured on a pool."""
    return session.scalars(
        select(Channel)
        .join(Repository, Repository.id == Channel.repository_id)
        .where(literal(pool) == any_(Repository.pools), Channel.enabled)
        .order_by(Channel.id)
    ).all()


def insert_notification(
    session: Session,
    *,
    channel_id: int,
    event: str,
    now: datetime,
    regression_id: int | None = None,
    occurrence: int = 1,
    subject: str | None = None,
    words: str | None = None,
    held_until: datetime | None = None,
) -> bool:
    """Put one message into the outbox, to be told at once or in the digest of `held_until`; False if it is there."""
    inserted = session.execute(
        insert(Notification)
        .values(
            channel_id=channel_id,
            regression_id=regression_id,
            subject=subject,
            words=words,
            event=event,
            occurrence=occurrence,
            next_attempt_at=held_until or now,
            digest_at=held_until,
        )
        .on_conflict_do_nothing()
        .returning(Notification.id)
    )
    return inserted.first() is not None


def cancel_untold(session: Session, *, regression_ids: Collection[int], channel_id: int | None = None) -> Sequence[int]:
    """Take back messages that no sender has ever tried, and return their ids: nobody has heard of them."""
    statement = update(Notification).where(
        Notification.regression_id.in_(regression_ids),
        Notification.state == NotificationState.PENDING,
        Notification.attempts == 0,
    )
    if channel_id is not None:
        statement = statement.where(Notification.channel_id == channel_id)
    return session.scalars(statement.values(state=NotificationState.CANCELLED).returning(Notification.id)).all()


def was_told(session: Session, *, channel_id: int, regression_id: int) -> bool:
    """Whether a channel has, or may have, the bad news of a regression."""
    found = session.scalars(
        select(Notification.id).where(
            Notification.channel_id == channel_id,
            Notification.regression_id == regression_id,
            Notification.event.in_(BAD_NEWS),
            or_(
                Notification.state.in_([NotificationState.SENT, NotificationState.SENDING]),
                and_(Notification.state == NotificationState.PENDING, Notification.attempts > 0),
            ),
        )
    )
    return found.first() is not None


def has_subject(session: Session, *, channel_id: int, subject: str) -> bool:
    """Whether a channel has, or will have, a message about a subject."""
    found = session.scalars(select(Notification.id).filter_by(channel_id=channel_id, subject=subject))
    return found.first() is not None


def _is_due(now: datetime) -> ColumnElement[bool]:
    return or_(
        and_(Notification.state == NotificationState.PENDING, Notification.next_attempt_at <= now),
        and_(Notification.state == NotificationState.SENDING, Notification.sending_since < now - STUCK_AFTER),
    )


def due(session: Session, *, now: datetime, limit: int = 50) -> Sequence[int]:
    """Return the ids of messages whose time has come, in order of creation, stuck ones included."""
    return session.scalars(select(Notification.id).where(_is_due(now)).order_by(Notification.id).limit(limit)).all()


def claim(session: Session, *, notification: Notification, now: datetime) -> Sequence[int]:
    """Take a due message for sending, and with a held one its fellows; returns the ids, none if somebody has it."""
    if notification.digest_at is None:
        ids: Sequence[int] = [notification.id]
    else:
        session.get_one(Channel, notification.channel_id, with_for_update=True)  # one claim at a time names a digest
        ids = _fellows(session, notification=notification, now=now)
    if not ids:
        return []
    values = {
        "state": NotificationState.SENDING,
        "sending_since": now,
        "attempts": Notification.attempts + 1,
        "digest_id": None if notification.digest_at is None else min(ids),
    }
    claimed = update(Notification).where(Notification.id.in_(ids), _is_due(now)).values(values)
    return sorted(session.scalars(claimed.returning(Notification.id)))


def _fellows(session: Session, *, notification: Notification, now: datetime) -> Sequence[int]:
    """Return the messages of the digest that a held message belongs to, as its first claim fixed it."""
    session.refresh(notification)
    if notification.digest_id is not None:
        return session.scalars(
            select(Notification.id).where(Notification.digest_id == notification.digest_id, _is_due(now))
        ).all()
    earlier = aliased(Notification)
    overtakes = (
        select(earlier.id)
        .where(
            earlier.channel_id == Notification.channel_id,
            *_same_thread(earlier, Notification),
            earlier.id < Notification.id,
            earlier.state.in_(WAITING),
            or_(
                earlier.digest_at.is_(None),
                earlier.digest_at != Notification.digest_at,
                earlier.digest_id.is_not(None),
            ),
        )
        .exists()
    )
    return session.scalars(
        select(Notification.id).where(
            Notification.channel_id == notification.channel_id,
            Notification.digest_at == notification.digest_at,
            Notification.digest_id.is_(None),
            Notification.state == NotificationState.PENDING,
            ~overtakes,
        )
    ).all()


def _same_thread(one: type[Notification], other: type[Notification] | Notification) -> tuple[ColumnElement[bool], ...]:
    return (
        one.regression_id.is_not_distinct_from(other.regression_id),
        one.subject.is_not_distinct_from(other.subject),
    )


def thread_of(session: Session, *, notification: Notification) -> str | None:
    """Return the other side's id of the message that opened the regression, or the subject, in its channel."""
    return session.scalars(
        select(Notification.external_id)
        .where(
            Notification.channel_id == notification.channel_id,
            *_same_thread(Notification, notification),
            Notification.event.in_([NotificationEvent.OPENED, NotificationEvent.BROKEN]),
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
                *_same_thread(Notification, notification),
                Notification.id < notification.id,
                Notification.state.in_(WAITING),
            )
        ).first()
        is not None
    )


def mark_sent(session: Session, *, ids: Collection[int], external_id: str, now: datetime) -> None:
    """Record that the other side has the message, or the digest of these messages."""
    session.execute(
        update(Notification)
        .where(Notification.id.in_(ids))
        .values(state=NotificationState.SENT, sent_at=now, external_id=external_id, error=None)
    )


def mark_failed(session: Session, *, ids: Collection[int], error: str, retry_at: datetime | None) -> None:
    """Record a failure: tried again at `retry_at`, or for good when that is None."""
    state = NotificationState.FAILED if retry_at is None else NotificationState.PENDING
    values: dict[str, object] = {"state": state, "error": error}
    if retry_at is not None:
        values["next_attempt_at"] = retry_at
    session.execute(update(Notification).where(Notification.id.in_(ids)).values(values))
