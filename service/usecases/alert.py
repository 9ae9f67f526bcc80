"""Alerts: put messages into the outbox with the change they speak of, and deliver them once.

`enqueue` runs inside the transaction that changes the regression: either both are stored or neither. `deliver_due`
claims one row at a time by a conditional update, sends outside any transaction, and records the result. A sender killed
between the two is found after two minutes, and the message is sent again under the same key (Message-ID, idempotency
header), which the other side drops if it has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from random import Random

from sqlalchemy.orm import Session, sessionmaker

from service.domain.message import DeliveryError, Sender
from service.domain.severity import at_least
from service.domain.states import ChannelKind, NotificationEvent, NotificationState
from service.store import outbox
from service.store.messages import read_message
from service.store.tables import Channel, Notification, Regression
from service.usecases.aftermath import Aftermath

MAX_ATTEMPTS = 8
FIRST_RETRY_S = 15.0
LAST_RETRY_S = 3600.0


def enqueue(session: Session, *, regression: Regression, event: NotificationEvent) -> Aftermath:
    """Put one message per interested channel into the outbox; asking twice changes nothing."""
    now = regression.closed_at or regression.attributed_at or regression.confirmed_at or regression.created_at
    added = False
    for channel in outbox.channels_of(session, repository_id=regression.repository_id):
        if wants(channel, regression, event):
            added |= outbox.insert_notification(
                session,
                channel_id=channel.id,
                regression_id=regression.id,
                event=event,
                occurrence=regression.life,
                now=now,
            )
    return Aftermath(deliver=added)


def wants(channel: Channel, regression: Regression, event: NotificationEvent) -> bool:
    """Whether a channel asked for this kind of news."""
    return (
        event in channel.events
        and regression.direction in channel.directions
        and at_least(regression.severity, channel.min_severity)
    )


def deliver_due(
    sessions: sessionmaker[Session],
    *,
    senders: Mapping[ChannelKind, Sender],
    public_url: str,
    clock: Callable[[], datetime],
    rng: Random,
) -> int:
    """Send what is due and return how many went out. Any number of these may run at once."""
    sent = 0
    with sessions() as session:
        ids = outbox.due(session, now=clock())
    for notification_id in ids:
        sent += _deliver(
            sessions, notification_id=notification_id, senders=senders, public_url=public_url, clock=clock, rng=rng
        )
    return sent


def _deliver(
    sessions: sessionmaker[Session],
    *,
    notification_id: int,
    senders: Mapping[ChannelKind, Sender],
    public_url: str,
    clock: Callable[[], datetime],
    rng: Random,
) -> bool:
    with sessions.begin() as session:
        notification = session.get_one(Notification, notification_id)
        if outbox.earlier_unsent(session, notification=notification):
            return False
        if not outbox.claim(session, notification_id=notification_id, now=clock()):
            return False
        channel = session.get_one(Channel, notification.channel_id)
        message = read_message(session, notification=notification, public_url=public_url)
        thread = outbox.thread_of(session, channel_id=channel.id, regression_id=notification.regression_id)
        kind, config, attempts = ChannelKind(channel.kind), dict(channel.config), notification.attempts + 1
    try:
        external_id = senders[kind].send(message, config=config, thread=thread)
    except DeliveryError as error:
        retry_at = None
        if error.transient and attempts < MAX_ATTEMPTS:
            retry_at = clock() + back_off(attempts, rng=rng, at_least_s=error.retry_after_s)
        with sessions.begin() as session:
            outbox.mark_failed(session, notification_id=notification_id, error=str(error), retry_at=retry_at)
        return False
    with sessions.begin() as session:
        outbox.mark_sent(session, notification_id=notification_id, external_id=external_id, now=clock())
    return True


def back_off(attempts: int, *, rng: Random, at_least_s: float = 0.0) -> timedelta:
    """Wait twice as long after each attempt, with up to half of it as jitter, never less than the peer asked."""
    wait_s = min(FIRST_RETRY_S * 2.0 ** (attempts - 1), LAST_RETRY_S)
    return timedelta(seconds=max(wait_s * (1 + 0.5 * rng.random()), at_least_s))


def retry(session: Session, *, notification_id: int, now: datetime) -> bool:
    """Give a failed message another life; False if it has not failed."""
    notification = session.get_one(Notification, notification_id, with_for_update=True)
    if notification.state != NotificationState.FAILED:
        return False
    notification.state = NotificationState.PENDING
    notification.attempts = 0
    notification.next_attempt_at = now
    return True
