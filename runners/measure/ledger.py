"""What a session has learned so far of each workload of each commit, and the reports it turns into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from runners.api import Cache
from runners.measure.canary import CANARY_FLOPS
from runners.measure.protocol import MIN_PROCESSES, Figure, Flag, enough, history_figure, mostly_throttled
from runners.measure.team import Warmed
from service.contract import MeasurementReport, MeasurementStatus, ProtocolParams, RunFailure, SampleBlock, Tier

PLAIN = "plain"  # the device's word for launches that no graph could hold
RATE_LIMIT = 4.0  # times the canary's float32 rate per core; half precision only doubles it

_STATUS_BY_KIND = {
    "wrong_result": MeasurementStatus.WRONG_RESULT,
    "skipped": MeasurementStatus.SKIPPED,
    "too_noisy": MeasurementStatus.TOO_NOISY,
    "timed_out": MeasurementStatus.TIMED_OUT,
}


@dataclass(slots=True)
class Entry:
    """One workload of one commit while it is being measured."""

    sha: str
    described: dict[str, Any]
    blocks: list[SampleBlock] = field(default_factory=list)
    flags: set[Flag] = field(default_factory=set)
    failed: MeasurementStatus | None = None
    error: str | None = None
    output_hash: str | None = None
    static: dict[str, float | str] = field(default_factory=dict)
    code_hash: str | None = None
    identical_to: str | None = None  # the commit whose code this is, when it was not timed for that
    launches: int = 0
    method: str = ""  # how the device times it, where it has more than one way

    @property
    def key(self) -> str:
        """The workload's key."""
        return str(self.described["workload"])

    @property
    def threads(self) -> int:
        """Threads that the kernel uses."""
        return int(self.described["threads"])

    def fail(self, kind: str, reason: str) -> None:
        """Record why this workload carries no figure; the first reason stays, a wrong result outranks all."""
        status = _STATUS_BY_KIND.get(kind, MeasurementStatus.CRASHED)
        if self.failed is None or status is MeasurementStatus.WRONG_RESULT:
            self.failed = status
            self.error = reason[:2000]

    def note(self, warmed: Warmed) -> None:
        """Keep what a warm-up found; one workload is never timed in two ways in one session."""
        self.launches = warmed.count
        if not warmed.settled:
            self.flags.add(Flag.NO_STEADY_STATE)
        if self.method and warmed.method != self.method:
            self.fail("too_noisy", f"it was timed by {self.method} first and by {warmed.method} now")
        self.method = warmed.method
        self.static.update(warmed.facts)

    @property
    def metric(self) -> str:
        """What its figure means: the time in a warm cache, in a cold one, or by plain launches where no graph served.

        The way of timing is part of the series key, so a way that changes starts another series and no alarm.
        """
        cold = "_cold" if self.described.get("cache") == Cache.COLD else ""
        return f"time{cold}" + ("_plain" if self.method == PLAIN else "")

    def figure(self, reference_s: float) -> Figure | None:
        """The history point from the blocks so far."""
        return history_figure(self.blocks, threads=self.threads, reference_s=reference_s)

    def _faster_than_possible(self, value_s: float, reference_s: float) -> bool:
        """Whether a CPU kernel claims several times the rate of the canary, which runs near the core's peak."""
        if self.described["device"] != "cpu":
            return False
        rate, canary_rate = self.described["flops"] / value_s, CANARY_FLOPS / reference_s
        return bool(rate > RATE_LIMIT * canary_rate * self.threads)

    def _why_no_figure(self) -> str:
        if not self.blocks:
            return "the time ran out before its first block"
        if mostly_throttled(self.blocks):
            return "the hardware throttled the device during too many of its blocks"
        return "no block carried usable times"

    def report(self, reference_s: float) -> MeasurementReport:
        """The contract's record: all samples, and the figure when the status is OK."""
        figure = None if self.failed else self.figure(reference_s)
        status, error = self.failed, self.error
        if status is None and figure is None:
            status = MeasurementStatus.TOO_NOISY
            error = self._why_no_figure()
        flags = self.flags | set(figure.flags if figure else ())
        if figure is not None and self._faster_than_possible(figure.value_s, reference_s):
            flags.add(Flag.IMPLAUSIBLE)
        described = self.described
        return MeasurementReport(
            sha=self.sha,
            benchmark=described["benchmark"],
            family=described["family"],
            version=described["version"],
            problem=described["problem"],
            device=described["device"],
            workload=self.key,
            axes=described["axes"],
            control=described["control"],
            flops=described["flops"],
            bytes=described["bytes"],
            status=status or MeasurementStatus.OK,
            error=error,
            value_s=figure.value_s if figure else None,
            half_width_s=figure.half_width_s if figure else None,
            clock=figure.clock if figure else "wall",
            blocks=tuple(self.blocks),
            flags=tuple(sorted(flags)),
            code_hash=self.code_hash,
            output_hash=self.output_hash,
            static=self.static,
            metric=self.metric,
            identical_to=self.identical_to,
            tier=Tier(described["tier"]),
        )


@dataclass(slots=True)
class Ledger:
    """Every workload of every commit of a session, and the commits that broke."""

    entries: dict[str, dict[str, Entry]] = field(default_factory=dict)  # sha -> workload key -> entry
    broken: dict[str, RunFailure] = field(default_factory=dict)
    launches: dict[str, int] = field(
        default_factory=dict
    )  # workload key -> launches in a sample, where that is planned

    def measurable(self) -> list[Entry]:
        """Workloads that have not failed, of commits that are not broken."""
        return [e for e in self.reportable() if e.failed is None]

    def reportable(self) -> list[Entry]:
        """All workloads of commits that are not broken."""
        return [e for sha, by_key in self.entries.items() if sha not in self.broken for e in by_key.values()]

    def spoil(self, reason: str) -> None:
        """No workload of this session carries a figure."""
        for entry in self.measurable():
            entry.fail("too_noisy", reason)

    def flag(self, flags: Sequence[Flag]) -> None:
        """Every workload that carries a figure earned these flags."""
        for entry in self.measurable():
            entry.flags.update(flags)

    def drop_blocks_of(self, process: int) -> None:
        """Forget a replicate that did not end well, so that it can be repeated."""
        for by_key in self.entries.values():
            for entry in by_key.values():
                entry.blocks = [b for b in entry.blocks if b.process != process]


class Stopping(Protocol):
    """When a workload needs no further process."""

    @property
    def processes_min(self) -> int:
        """Processes that a session does even when its budget is spent."""

    def finished(self, entries: Sequence[Entry], *, processes: int) -> bool:
        """Whether the entries of one workload (one per subject) are settled after so many processes."""


@dataclass(frozen=True, slots=True)
class HalfWidthStopping:
    """Stop when every subject's history point is narrow enough."""

    params: ProtocolParams
    reference_s: float

    @property
    def processes_min(self) -> int:
        """Below this an interval says too little."""
        return MIN_PROCESSES

    def finished(self, entries: Sequence[Entry], *, processes: int) -> bool:
        """Every half-width at or below the target."""
        del processes
        return all(enough(entry.figure(self.reference_s), self.params) for entry in entries)
