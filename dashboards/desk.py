"""What the pages are given: the snapshot of the store, the clock, and the doors to the use cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from service.store.pages import Pages


class TriageAction(StrEnum):
    """What a person may say of a regression; the value is the state it moves to."""

    ACKNOWLEDGE = "acknowledged"
    EXPECTED = "expected"
    NOT_REAL = "not_real"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class TriageRequest:
    """One decision on one or many regressions, with who made it and why."""

    regression_ids: tuple[int, ...]
    action: TriageAction
    actor: str
    reason: str | None
    assignee: str | None
    expires_at: datetime | None


class RefusedError(Exception):
    """A use case said no; the message is a sentence for the person who asked."""


@dataclass(frozen=True, slots=True)
class TriageOutcome:
    """How many regressions moved, and why the others did not."""

    moved: int
    refused: Mapping[int, str]


class Triage(Protocol):
    """Carries out a decision; raises ValueError or RefusedError with a sentence if it lacks something."""

    def __call__(self, request: TriageRequest) -> TriageOutcome:
        """Move every regression of the request that may move, in one transaction."""


class BisectionAction(StrEnum):
    """What a person may do to a search."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RERUN = "rerun"


class Steer(Protocol):
    """Pauses, resumes, cancels or repeats the search of a regression, or raises RefusedError."""

    def __call__(
        self, *, regression_id: int, action: BisectionAction, actor: str, budget_s: float | None = None
    ) -> None:
        """Act on the newest search of this regression; a budget goes with resuming and repeating."""


class RunnerAction(StrEnum):
    """What a person may do to a runner."""

    QUARANTINE = "quarantine"
    RELEASE = "release"


class Fleet(Protocol):
    """Quarantines or releases a runner, or raises RefusedError."""

    def __call__(self, *, runner_id: int, action: RunnerAction, reason: str, actor: str) -> None:
        """Act on one runner; the reason is kept."""


class Post(Protocol):
    """The outbox, as far as a person may push it; both raise RefusedError with a sentence."""

    def retry(self, *, notification_id: int, actor: str) -> None:
        """Try a message that has failed again."""

    def test(self, *, channel_id: int, actor: str) -> str:
        """Send a made-up message through a channel, now, and return the channel's name."""


@dataclass(frozen=True, slots=True)
class PolicyWish:
    """What a person wants to count as a change: None leaves a value; `workload` is a pattern, None = all of them."""

    repository: str
    min_effect: float | None
    confidence: float | None
    workload: str | None


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """What counts as a change in a repository: a relative floor, a confidence, and both per pattern of workloads."""

    repository: str
    min_effect: float
    confidence: float
    workloads: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class PolicyDifference:
    """One step of the past that another policy would have kept, lost or added."""

    kind: str
    workload: str
    effect: float
    sha: str
    subject: str


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """What a policy would have made of the last `days` days."""

    after: PolicyRow
    days: int
    series: int
    points: int
    differences: tuple[PolicyDifference, ...]


class Policies(Protocol):
    """The policies of the repositories; refused wishes raise RefusedError with a sentence."""

    def in_force(self) -> Sequence[PolicyRow]:
        """Every repository's, by name."""

    def preview(self, wish: PolicyWish) -> PolicyPreview:
        """Try a policy on the stored history; nothing is written."""

    def save(self, wish: PolicyWish, *, actor: str) -> None:
        """Put it into force."""


@dataclass(frozen=True, slots=True)
class Desk:
    """Everything a page may reach. Without `sign_in` and `triage` the site is read-only."""

    pages: Pages
    now: Callable[[], datetime]
    sign_in: Callable[[str], str | None] | None = None
    triage: Triage | None = None
    steer: Steer | None = None
    post: Post | None = None
    fleet: Fleet | None = None
    policies: Policies | None = None
    catcher_url: str | None = None  # where the local mail and Slack catcher shows what it has
