"""What a session has learned so far of each workload of each commit, and the reports it turns into."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runners.measure.protocol import Figure, Flag, enough, history_figure
from service.contract import MeasurementReport, MeasurementStatus, ProtocolParams, SampleBlock

_STATUS_BY_KIND = {
    "wrong_result": MeasurementStatus.WRONG_RESULT,
    "skipped": MeasurementStatus.SKIPPED,
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
    launches: int = 0

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

    def figure(self, reference_s: float) -> Figure | None:
        """The history point from the blocks so far."""
        return history_figure(self.blocks, threads=self.threads, reference_s=reference_s)

    def done(self, params: ProtocolParams, reference_s: float) -> bool:
        """Whether it needs no further process."""
        return self.failed is not None or enough(self.figure(reference_s), params)

    def report(self, reference_s: float) -> MeasurementReport:
        """The contract's record: all samples, and the figure when the status is OK."""
        figure = None if self.failed else self.figure(reference_s)
        status, error = self.failed, self.error
        if status is None and figure is None:
            status = MeasurementStatus.TOO_NOISY
            error = "no block carried usable times" if self.blocks else "the time ran out before its first block"
        flags = self.flags | set(figure.flags if figure else ())
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
        )
