"""States of runs, regressions, bisections and notifications, and which may follow which.

One table per machine; `check_move` refuses everything else, so that no use case invents a transition.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RunState(StrEnum):
    """queued -> leased -> measuring -> reported | failed | abandoned; skipped is never measured."""

    QUEUED = "queued"
    LEASED = "leased"
    MEASURING = "measuring"
    REPORTED = "reported"
    FAILED = "failed"
    ABANDONED = "abandoned"
    SKIPPED = "skipped"


class RegressionState(StrEnum):
    """The life of a regression (or an improvement, which is the same type in the other direction)."""

    DETECTED = "detected"
    CONFIRMED = "confirmed"
    ATTRIBUTED = "attributed"
    ACKNOWLEDGED = "acknowledged"
    FIXED = "fixed"
    EXPECTED = "expected"
    NOT_REAL = "not_real"


class Direction(StrEnum):
    """Which way the number moved, seen from the user: a regression is worse, an improvement better."""

    REGRESSION = "regression"
    IMPROVEMENT = "improvement"


class BisectionState(StrEnum):
    """A bisection asks for probes until it has an outcome; people may pause or cancel it."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"


class BisectionVerdict(StrEnum):
    """What a bisection found; only CULPRIT and CULPRITS name commits."""

    CULPRIT = "culprit"
    CULPRITS = "culprits"
    RANGE = "range"
    NO_CHANGE = "no_change"
    INCONCLUSIVE = "inconclusive"


class NotificationState(StrEnum):
    """An outbox row: pending -> sending -> sent | failed; transient errors go back to pending with a later time.

    Cancelled: what it said was taken back before anybody had been told.
    """

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    CANCELLED = "cancelled"


class NotificationEvent(StrEnum):
    """What people are told, each at most once per channel and subject.

    Of a regression: its life, and to the fleet's owner what the machine did. Of a commit: that it is broken, and that
    a later one is right again. Of a week: which series have two levels. Of a
    runner, to the fleet's owner: where it stands now.
    """

    OPENED = "opened"
    ATTRIBUTED = "attributed"
    FIXED = "fixed"
    REOPENED = "reopened"
    WITHDRAWN = "withdrawn"
    ENVIRONMENT = "environment"
    BROKEN = "broken"
    REPAIRED = "repaired"
    BIMODAL = "bimodal"
    RUNNER = "runner"


class Standing(StrEnum):
    """What a runner's word is worth."""

    TRUSTED = "trusted"
    ADVISORY = "advisory"  # it measures, but gives no verdict that pages anybody
    QUARANTINED = "quarantined"  # canary jobs only


class JobVerdict(StrEnum):
    """What one job says of its runner; a fault needs no repetition, and what others disturbed is not judged."""

    CLEAN = "clean"
    BAD = "bad"
    FAULT = "fault"
    UNJUDGED = "unjudged"


class ChannelKind(StrEnum):
    """Where a notification goes."""

    EMAIL = "email"
    SLACK_WEBHOOK = "slack_webhook"
    SLACK_BOT = "slack_bot"
    WEBHOOK = "webhook"
    GITHUB_ISSUE = "github_issue"
    GITLAB_ISSUE = "gitlab_issue"


class MeasurePolicy(StrEnum):
    """Which commits of a push are measured: its tip (bisection does the rest), or every one."""

    TIP = "tip"
    EVERY = "every"


RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.LEASED, RunState.SKIPPED, RunState.ABANDONED}),
    RunState.LEASED: frozenset(
        {RunState.MEASURING, RunState.REPORTED, RunState.FAILED, RunState.QUEUED, RunState.ABANDONED}
    ),
    RunState.MEASURING: frozenset({RunState.REPORTED, RunState.FAILED, RunState.QUEUED, RunState.ABANDONED}),
    RunState.REPORTED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.ABANDONED: frozenset(),
    RunState.SKIPPED: frozenset(),
}

_OPEN = frozenset(
    {
        RegressionState.DETECTED,
        RegressionState.CONFIRMED,
        RegressionState.ATTRIBUTED,
        RegressionState.ACKNOWLEDGED,
    }
)
_CLOSED = frozenset({RegressionState.FIXED, RegressionState.EXPECTED, RegressionState.NOT_REAL})

REGRESSION_MOVES: Mapping[RegressionState, frozenset[RegressionState]] = {
    RegressionState.DETECTED: frozenset({RegressionState.CONFIRMED, RegressionState.ATTRIBUTED}) | _CLOSED,
    RegressionState.CONFIRMED: frozenset({RegressionState.ATTRIBUTED, RegressionState.ACKNOWLEDGED}) | _CLOSED,
    RegressionState.ATTRIBUTED: frozenset({RegressionState.ACKNOWLEDGED}) | _CLOSED,
    RegressionState.ACKNOWLEDGED: _CLOSED,
    RegressionState.FIXED: frozenset({RegressionState.CONFIRMED}),
    RegressionState.EXPECTED: frozenset({RegressionState.CONFIRMED}),
    RegressionState.NOT_REAL: frozenset({RegressionState.CONFIRMED}),
}

OPEN_REGRESSION_STATES = _OPEN
FINAL_RUN_STATES = frozenset(state for state, after in RUN_MOVES.items() if not after)


class IllegalMoveError(ValueError):
    """A state change that the machine does not allow."""


def check_run_move(before: RunState, after: RunState) -> None:
    """Raise IllegalMoveError unless a run may go from `before` to `after`."""
    if after not in RUN_MOVES[before]:
        raise IllegalMoveError(f"a run that is {before} cannot become {after}")


def check_regression_move(before: RegressionState, after: RegressionState) -> None:
    """Raise IllegalMoveError unless a regression may go from `before` to `after`."""
    if after not in REGRESSION_MOVES[before]:
        raise IllegalMoveError(f"a regression that is {before} cannot become {after}")
