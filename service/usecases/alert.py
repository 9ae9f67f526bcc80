"""Alerts: put messages into the outbox with the change they speak of, and deliver them once.

`enqueue` runs inside the transaction that changes the regression: either both are stored or neither. `deliver_due`
claims one row at a time by a conditional update, sends outside any transaction, and records the result. A sender killed
between the two is found after two minutes, and the message is sent again under the same key (Message-ID, idempotency
header, marker in an issue), which the other side drops if it has it; of the peers only Slack keeps no keys. What a
channel holds back for the end of its quiet hours, or for its daily hour, is claimed and sent as one digest.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

from sqlalchemy.orm import Session, sessionmaker

from service.domain.message import DeliveryError, Digest, News, Sender, sample_message
from service.domain.notice import Notice, runner_subject
from service.domain.severity import at_least
from service.domain.states import ChannelKind, NotificationEvent, NotificationState, RegressionState
from service.domain.timetable import timetable_of
from service.store import audit, outbox
from service.store.messages import read_news
from service.store.tables import Channel, Notification, Regression, Repository, Runner
from service.usecases.aftermath import Aftermath

MAX_ATTEMPTS = 8
FIRST_RETRY_S = 15.0
LAST_RETRY_S = 3600.0
ISSUE_KINDS = frozenset({ChannelKind.GITHUB_ISSUE, ChannelKind.GITLAB_ISSUE})  # an issue wakes nobody: never held back
SILENT_STATES = frozenset({RegressionState.EXPECTED, RegressionState.NOT_REAL})


def enqueue(session: Session, *, regression: Regression, event: NotificationEvent, now: datetime) -> Aftermath:
    """Put one message per interested channel into the outbox; asking twice changes nothing.

    Nothing is said of what people expect or have called not real. What is taken back is told where the bad news was
    told; where it still waits, both are dropped.
    """
    withdrawn = event is NotificationEvent.WITHDRAWN
    if regression.state in SILENT_STATES and event not in {NotificationEvent.WITHDRAWN, NotificationEvent.ENVIRONMENT}:
        return Aftermath()
    added = False
    for channel in outbox.channels_of(session, repository_id=regression.repository_id):
        if withdrawn and not _still_to_withdraw(session, channel=channel, regression=regression):
            continue
        if wants(channel, regression, event):
            added |= outbox.insert_notification(
                session,
                channel_id=channel.id,
                regression_id=regression.id,
                event=event,
                occurrence=regression.life,
                now=now,
                held_until=_held_until(channel, now),
            )
    return Aftermath(deliver=added)


def enqueue_notice(
    session: Session, *, repository_id: int, event: NotificationEvent, subject: str, now: datetime
) -> Aftermath:
    """Put one message about a subject that is no regression into the outbox, for each channel that asked for it.

    Its end is told where its beginning was told, and nowhere else.
    """
    added = False
    for channel in outbox.channels_of(session, repository_id=repository_id):
        if not wants_notice(channel, event):
            continue
        if event is NotificationEvent.REPAIRED and not outbox.has_subject(
            session, channel_id=channel.id, subject=subject
        ):
            continue
        added |= outbox.insert_notification(
            session,
            channel_id=channel.id,
            subject=subject,
            event=event,
            now=now,
            held_until=_held_until(channel, now),
        )
    return Aftermath(deliver=added)


def tell_of_runner(session: Session, *, runner: Runner, words: str, now: datetime) -> bool:
    """Tell the channels of whoever owns the machines once that a runner's standing has changed; True if any is told.

    Repositories that share a pool often share such a channel: the same address hears it once. Quiet hours hold it back.
    """
    told = False
    addresses: list[tuple[str, Mapping[str, Any]]] = []
    for channel in outbox.channels_of_pool(session, pool=runner.pool):
        if not is_fleet(channel) or (channel.kind, channel.config) in addresses:
            continue
        addresses.append((channel.kind, channel.config))
        told |= outbox.insert_notification(
            session,
            channel_id=channel.id,
            event=NotificationEvent.RUNNER,
            subject=runner_subject(runner.id, change=runner.standing_changes),
            words=words,
            now=now,
            held_until=_held_until(channel, now),
        )
    return told


def wants_notice(channel: Channel, event: NotificationEvent) -> bool:
    """Whether a channel asked for a kind of notice: wrong results have no size, and a weekly list is no issue."""
    if is_fleet(channel) or event not in channel.events:
        return False
    return event is not NotificationEvent.BIMODAL or channel.kind not in ISSUE_KINDS


def _held_until(channel: Channel, now: datetime) -> datetime | None:
    return None if channel.kind in ISSUE_KINDS else timetable_of(channel.config).held_until(now)


def _still_to_withdraw(session: Session, *, channel: Channel, regression: Regression) -> bool:
    outbox.cancel_untold(session, regression_ids=[regression.id], channel_id=channel.id)
    return outbox.was_told(session, channel_id=channel.id, regression_id=regression.id)


def silence(session: Session, *, regression_ids: Collection[int]) -> None:
    """Drop what waits to be said of regressions that people have accepted or called not real."""
    outbox.cancel_untold(session, regression_ids=regression_ids)


def wants(channel: Channel, regression: Regression, event: NotificationEvent) -> bool:
    """Whether a channel asked for this kind of news; a fleet channel hears of the machines and of nothing else."""
    if is_fleet(channel) or event is NotificationEvent.ENVIRONMENT:
        return is_fleet(channel) and event is NotificationEvent.ENVIRONMENT
    return (
        event in channel.events
        and regression.direction in channel.directions
        and at_least(regression.severity, channel.min_severity)
    )


def is_fleet(channel: Channel) -> bool:
    """Whether a channel belongs to whoever owns the machines."""
    return bool(channel.config.get("fleet"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A claimed delivery, ready to be sent outside any transaction."""

    ids: Sequence[int]
    kind: ChannelKind
    config: Mapping[str, Any]
    news: News
    thread: str | None
    attempts: int

    def send(self, sender: Sender) -> str:
        """Hand it over; raises DeliveryError."""
        if isinstance(self.news, Digest):
            return sender.send_digest(self.news, config=self.config)
        if isinstance(self.news, Notice):
            return sender.send_notice(self.news, config=self.config, thread=self.thread)
        return sender.send(self.news, config=self.config, thread=self.thread)


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
        with sessions.begin() as session:
            parcel = _claim(session, notification_id=notification_id, public_url=public_url, now=clock())
        if parcel is not None:
            sent += _deliver(sessions, parcel=parcel, sender=senders[parcel.kind], clock=clock, rng=rng)
    return sent


def _claim(session: Session, *, notification_id: int, public_url: str, now: datetime) -> Parcel | None:
    notification = session.get_one(Notification, notification_id)
    if notification.digest_at is None and outbox.earlier_unsent(session, notification=notification):
        return None
    ids = outbox.claim(session, notification=notification, now=now)
    if not ids:
        return None
    session.refresh(notification)
    channel = session.get_one(Channel, notification.channel_id)
    return Parcel(
        ids=ids,
        kind=ChannelKind(channel.kind),
        config=dict(channel.config),
        news=read_news(session, ids=ids, public_url=public_url),
        thread=outbox.thread_of(session, notification=notification),
        attempts=notification.attempts,
    )


def _deliver(
    sessions: sessionmaker[Session],
    *,
    parcel: Parcel,
    sender: Sender,
    clock: Callable[[], datetime],
    rng: Random,
) -> bool:
    try:
        external_id = parcel.send(sender)
    except DeliveryError as error:
        retry_at = None
        if error.transient and parcel.attempts < MAX_ATTEMPTS:
            retry_at = clock() + back_off(parcel.attempts, rng=rng, at_least_s=error.retry_after_s)
        with sessions.begin() as session:
            outbox.mark_failed(session, ids=parcel.ids, error=str(error), retry_at=retry_at)
        return False
    with sessions.begin() as session:
        outbox.mark_sent(session, ids=parcel.ids, external_id=external_id, now=clock())
    return True


def back_off(attempts: int, *, rng: Random, at_least_s: float = 0.0) -> timedelta:
    """Wait twice as long after each attempt, with up to half of it as jitter, never less than the peer asked."""
    wait_s = min(FIRST_RETRY_S * 2.0 ** (attempts - 1), LAST_RETRY_S)
    return timedelta(seconds=max(wait_s * (1 + 0.5 * rng.random()), at_least_s))


def retry(session: Session, *, notification_id: int, actor: str, now: datetime) -> bool:
    """Give a failed message another life, on its own; False if there is none that has failed."""
    notification = session.get(Notification, notification_id, with_for_update=True)
    if notification is None or notification.state != NotificationState.FAILED:
        return False
    notification.state = NotificationState.PENDING
    notification.attempts = 0
    notification.next_attempt_at = now
    notification.digest_at = notification.digest_id = None
    audit.record(session, actor=actor, action="notification.retry", subject=("notification", notification.id))
    return True


def try_channel(session: Session, *, channel_id: int, senders: Mapping[ChannelKind, Sender], public_url: str) -> str:
    """Send a made-up message through a channel, now, and return the channel's name.

    Raises LookupError if there is no such channel, DeliveryError if it does not work.
    """
    channel = session.get(Channel, channel_id)
    if channel is None:
        raise LookupError(f"there is no channel {channel_id}")
    repository = session.get_one(Repository, channel.repository_id)
    message = sample_message(key=f"test-{secrets.token_hex(8)}", repository=repository.name, url=public_url)
    senders[ChannelKind(channel.kind)].send(message, config=dict(channel.config), thread=None)
    return channel.name
