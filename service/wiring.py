"""What every process of the service is made of: settings, database, mirrors, queue, clock, tied together once.

Only the composition roots (web, worker, beat, admin commands) call this; everything below takes what it needs as
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from service.adapters.git import GitMirrors
from service.adapters.queue import CeleryBell, make_producer
from service.domain.message import Sender
from service.domain.states import ChannelKind
from service.settings import Settings
from service.store.engine import make_engine, make_sessions
from service.usecases.aftermath import Aftermath
from service.usecases.ports import Bell, Mirrors

if TYPE_CHECKING:
    from celery import Celery

DELIVER_TASK = "service.deliver_outbox"


class ConfigurationError(Exception):
    """A setting is missing or unsafe; the message says which and what to do."""


@dataclass(frozen=True, slots=True)
class Services:
    """The parts, ready to use."""

    settings: Settings
    engine: Engine
    sessions: sessionmaker[Session]
    bell: Bell
    mirrors: Mirrors
    clock: Callable[[], datetime]

    @property
    def public_url(self) -> str:
        """Where people reach the dashboard, for links in messages."""
        return (self.settings.public_url or f"http://{self.settings.host}:{self.settings.port}").rstrip("/")


def connect(settings: Settings, *, celery: Celery | None = None) -> Services:
    """Tie the parts together; nothing is contacted yet."""
    engine = make_engine(require(settings.database_url, "DATABASE_URL"))
    return Services(
        settings=settings,
        engine=engine,
        sessions=make_sessions(engine),
        bell=CeleryBell(celery or make_producer(require(settings.redis_url, "REDIS_URL"))),
        mirrors=GitMirrors(settings.cache_dir / "mirrors"),
        clock=utc_now,
    )


def require(value: str | None, name: str) -> str:
    """The value, or a sentence on what to do about its absence."""
    if not value:
        raise ConfigurationError(f"{name} is not set. `kernelwatch up` brings its own server and sets it.")
    return value


def utc_now() -> datetime:
    """The present moment."""
    return datetime.now(UTC)


def follow_up(parts: Services, aftermath: Aftermath) -> None:
    """Ring and deliver what a use case asked for, now that its transaction is committed."""
    for pool, run_id in aftermath.runs:
        parts.bell.ring(pool, run_id)
    if aftermath.deliver:
        parts.bell.later(DELIVER_TASK, {})


def senders(settings: Settings) -> Mapping[ChannelKind, Sender]:
    """How each kind of channel is reached."""
    from service.adapters.email import EmailSender
    from service.adapters.issues import GitHubIssueSender, GitLabIssueSender
    from service.adapters.slack import SlackBotSender, SlackWebhookSender
    from service.adapters.webhook import WebhookSender

    return {
        ChannelKind.EMAIL: EmailSender(smtp_url=settings.smtp_url, sender=settings.mail_from),
        ChannelKind.SLACK_WEBHOOK: SlackWebhookSender(),
        ChannelKind.SLACK_BOT: SlackBotSender(),
        ChannelKind.WEBHOOK: WebhookSender(),
        ChannelKind.GITHUB_ISSUE: GitHubIssueSender(),
        ChannelKind.GITLAB_ISSUE: GitLabIssueSender(),
    }
