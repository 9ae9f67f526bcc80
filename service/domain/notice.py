"""News that is no change of speed: a commit that is wrong or does not build, the weekly list, a runner's standing.

A notice belongs to a subject (`wrong_result:<commit>`, `bimodal:2030-W01`); each event of a subject is told at most
once per channel, and what ends a subject replies to what opened it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from service.domain.states import NotificationEvent


class BreakageKind(StrEnum):
    """What a commit may break other than speed."""

    WRONG_RESULT = "wrong_result"
    BUILD_FAILED = "build_failed"


WEEKLY_KIND = "bimodal"  # the verdict on a series that the list is of
RUNNER_KIND = "runner"
WEEKLY_HOUR_UTC = 6  # of Monday: the week's list is made from then on


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """One thing that a notice names, what there is to say of it, and where it is shown."""

    name: str
    words: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """What a channel says about one event of one subject, each in its own form."""

    key: str  # stable across retries: the idempotency key
    event: NotificationEvent
    subject: str
    repository: str
    title: str
    explanation: str
    lines: tuple[NoticeLine, ...]
    url: str


def breakage_subject(kind: BreakageKind, *, commit_id: int) -> str:
    """Return the name of one kind of breakage of one commit."""
    return f"{kind}:{commit_id}"


def breakage_of(subject: str) -> tuple[BreakageKind, int]:
    """Read a breakage's subject: what broke, and the id of the commit that broke it."""
    kind, _, commit_id = subject.partition(":")
    return BreakageKind(kind), int(commit_id)


def runner_subject(runner_id: int, *, change: int) -> str:
    """Return the name of one change of one runner's standing."""
    return f"{RUNNER_KIND}:{runner_id}:{change}"


def week_subject(now: datetime) -> str | None:
    """Return the name of the week's list (ISO 8601 weeks); None before its hour on Monday."""
    began = (now - timedelta(days=now.weekday())).replace(hour=WEEKLY_HOUR_UTC, minute=0, second=0, microsecond=0)
    year, week, _ = now.isocalendar()
    return f"{WEEKLY_KIND}:{year}-W{week:02d}" if now >= began else None
