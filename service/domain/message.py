"""A message about a regression: what every channel says, in its own form.

Size and certainty are kept apart: "+12.3 % (11.5 to 13.1 %), certain" is a large effect known well; the number alone
would not tell it from a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from service.domain.notice import Notice
from service.domain.reproduce import compare_command
from service.domain.severity import in_words
from service.domain.states import Direction, NotificationEvent


@dataclass(frozen=True, slots=True)
class CommitLine:
    """A commit as people read it."""

    sha: str
    subject: str
    author: str
    email: str = ""


@dataclass(frozen=True, slots=True)
class SeriesLine:
    """One series of a regression: relative effect with its interval, levels in seconds."""

    workload: str
    effect: float
    effect_low: float
    effect_high: float
    before_s: float


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One figure of a series with the half-width of its interval."""

    sha: str
    value_s: float
    half_width_s: float


@dataclass(frozen=True, slots=True)
class Chart:
    """The leading series around the change; `points[step]` is the first at the new level."""

    workload: str
    direction: Direction
    effect: float
    points: tuple[ChartPoint, ...]
    step: int


@dataclass(frozen=True, slots=True)
class Message:
    """Everything a channel may say about one event of one regression."""

    key: str  # stable across retries: the idempotency key
    event: NotificationEvent
    regression_id: int
    repository: str
    direction: Direction
    severity: str
    effect: float
    effect_low: float
    effect_high: float
    good: CommitLine
    bad: CommitLine
    candidates: int  # commits in the range
    culprit: CommitLine | None
    probability: float | None
    series: tuple[SeriesLine, ...]
    series_total: int  # series of this repository, for "3 of 40"
    device_s: float | None
    note: str | None
    url: str
    assignee: str | None = None
    severity_reason: str = ""
    steps: tuple[str, ...] = ()  # what it does to the steps of known models, in words
    owners: tuple[str, ...] = ()  # by CODEOWNERS at the named commit
    chart: Chart | None = None

    @property
    def title(self) -> str:
        """One line: what happened to what, by how much."""
        what = self.series[0].workload if self.series else self.repository
        word = "slower" if self.effect > 0 else "faster"
        return f"{_HEADS[self.event]}{what} {abs(self.effect) * 100:.1f} % {word}"

    @property
    def size(self) -> str:
        """The size with its interval, and in how many series."""
        interval = f"{percent(self.effect_low)} to {percent(self.effect_high)}"
        return f"{percent(self.effect)} ({interval}); {len(self.series)} of {self.series_total} series"

    @property
    def certainty(self) -> str:
        """How sure we are of the commit, in words."""
        if self.event is NotificationEvent.ENVIRONMENT:
            return "measured interleaved: no commit of the range is to blame"
        if self.culprit is None:
            return f"confirmed by an interleaved re-run; one of {self.candidates} commits"
        if self.probability is None:
            return "the only commit in the range that changes the kernels"
        return f"named by bisection with probability {self.probability:.3f}"

    @property
    def loudness(self) -> str:
        """The severity and why."""
        words = in_words(self.severity, gain=self.direction is Direction.IMPROVEMENT)
        return f"{words} ({self.severity_reason})" if self.severity_reason else words

    @property
    def suggestion(self) -> str:
        """Who may look at it: the author of the named commit, and the owners of what it changed."""
        if self.assignee or self.culprit is None:
            return ""
        owners = f"; code owners: {', '.join(self.owners)}" if self.owners else ""
        return f"{self.culprit.author} (author){owners}"

    @property
    def reproduce(self) -> str:
        """The command that shows it on any machine with the repository."""
        return compare_command(
            good_sha=self.good.sha,
            bad_sha=self.bad.sha,
            culprit_sha=self.culprit.sha if self.culprit else None,
            workload=self.series[0].workload if self.series else None,
        )


@dataclass(frozen=True, slots=True)
class Digest:
    """What a channel held back, told together: the last word on each regression."""

    key: str
    repository: str
    messages: tuple[Message, ...]
    url: str
    notices: tuple[Notice, ...] = ()

    @property
    def title(self) -> str:
        """One line: how many, and the largest."""
        if not self.messages:
            return f"{self.count}; {self.notices[0].title}"
        worst = max(self.messages, key=lambda message: abs(message.effect))
        return f"{self.count}; the largest: {worst.title}"

    @property
    def count(self) -> str:
        """How many of what."""
        parts = [f"{len(self.messages)} changes"] if self.messages else []
        parts += [f"{len(self.notices)} notices"] if self.notices else []
        return f"{' and '.join(parts)} while this channel was quiet"


News = Message | Digest | Notice


def mention_of(message: Message, config: Mapping[str, Any]) -> str | None:
    """Return how a channel calls the owner: who has the regression, else who wrote the commit, in its `owners`.

    Only news that asks somebody to act calls anybody: a named commit, and a step that came back.
    """
    if message.event not in {NotificationEvent.ATTRIBUTED, NotificationEvent.REOPENED}:
        return None
    owners = config.get("owners") or {}
    wanted = (message.assignee, message.culprit.email if message.culprit else None)
    return next((str(owners[name]) for name in wanted if name and name in owners), None)


def sample_message(*, key: str, repository: str, url: str) -> Message:
    """Return a made-up message that says of itself that it is a test."""
    commit = CommitLine(sha="0" * 40, subject="This is a test of the channel", author="kernelwatch")
    return Message(
        key=key,
        event=NotificationEvent.OPENED,
        regression_id=0,
        repository=repository,
        direction=Direction.REGRESSION,
        severity="low",
        effect=0.05,
        effect_low=0.04,
        effect_high=0.06,
        good=commit,
        bad=commit,
        candidates=1,
        culprit=None,
        probability=None,
        series=(),
        series_total=0,
        device_s=None,
        note="This is a test; nothing has changed.",
        url=url,
    )


_HEADS: Mapping[NotificationEvent, str] = {
    NotificationEvent.OPENED: "",
    NotificationEvent.ATTRIBUTED: "Culprit: ",
    NotificationEvent.FIXED: "Fixed: ",
    NotificationEvent.REOPENED: "Back again: ",
    NotificationEvent.WITHDRAWN: "Withdrawn: ",
    NotificationEvent.ENVIRONMENT: "The machine, not a commit: ",
}


def percent(ratio: float) -> str:
    """A signed percentage: +12.3 %."""
    return f"{ratio * 100:+.1f} %"


class DeliveryError(Exception):
    """A message that could not be handed over; `transient` ones are tried again."""

    def __init__(self, reason: str, *, transient: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.transient = transient
        self.retry_after_s = retry_after_s


class Sender(Protocol):
    """One kind of channel."""

    def send(self, message: Message, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Hand the message over and return the other side's id; `thread` is the id of the opening message.

        Raises DeliveryError.
        """

    def send_notice(self, notice: Notice, *, config: Mapping[str, Any], thread: str | None) -> str:
        """Hand over news that is no change of speed, and return the other side's id. Raises DeliveryError."""

    def send_digest(self, digest: Digest, *, config: Mapping[str, Any]) -> str:
        """Hand over what was held back, as one message, and return the other side's id. Raises DeliveryError."""
