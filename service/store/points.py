"""Reading points and raw blocks: what detection and bisection look at."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ScalarSelect, func, select, update
from sqlalchemy.orm import Session, undefer

from service.contract import MeasurementStatus, RunReason
from service.domain.points import Figure
from service.store.tables import Benchmark, GitCommit, Measurement, Run, Series, Workload

BLOCK_COLUMNS = (
    Measurement.wall_s,
    Measurement.cpu_s,
    Measurement.block_size,
    Measurement.block_process,
    Measurement.block_order,
    Measurement.block_canary_wall_s,
    Measurement.block_canary_cpu_s,
)
TAIL = 256  # points of one series that detection reads: bounded work, whatever the history


@dataclass(frozen=True, slots=True)
class TouchedSeries:
    """A series that a run has measured at its own commit."""

    series_id: int
    workload_key: str
    family: str
    problem: str
    control: bool
    direction: str
    pool: str
    status: str
    flops: float
    bytes: float
    unit: str


@dataclass(frozen=True, slots=True)
class RawMeasurement:
    """The blocks of one workload of one commit in one run; block medians in seconds on the figure's clock."""

    series_id: int
    commit_id: int
    run_id: int
    status: str
    control: bool
    workload_key: str
    clock: str
    environment_id: int | None
    comparable_key: str
    code: tuple[str, str] | None
    """Hashes of the machine code and of the recipe around it; None where one of them is not known."""
    identical_to: str | None
    block_process: Sequence[int]
    block_order: Sequence[int]
    median_wall_s: Sequence[float]
    median_cpu_s: Sequence[float]
    canary_wall_s: Sequence[float]
    canary_cpu_s: Sequence[float]
    value_s: float | None

    @property
    def canary_reference_s(self) -> float:
        """The pool's canary reference, recovered from the figure: value = median of the ratios x reference."""
        if self.value_s is None:
            return 1.0
        on_cpu = self.clock == "cpu"
        kernel, canary = (self.median_cpu_s, self.canary_cpu_s) if on_cpu else (self.median_wall_s, self.canary_wall_s)
        ratios = sorted(a / b for a, b in zip(kernel, canary, strict=True) if b > 0)
        return self.value_s / ratios[len(ratios) // 2] if ratios else 1.0


def touched_series(session: Session, *, run: Run) -> Sequence[TouchedSeries]:
    """List the series that `run` measured at its own commit, controls included."""
    rows = session.execute(
        select(Series, Workload, Benchmark, Measurement.status)
        .join(Measurement, Measurement.series_id == Series.id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(Measurement.run_id == run.id, Measurement.commit_id == run.commit_id)
        .order_by(Series.id)
    )
    return [_touched(series, workload, benchmark, status) for series, workload, benchmark, status in rows]


def series_by_id(session: Session, *, series_ids: Collection[int]) -> Sequence[TouchedSeries]:
    """Describe some series without asking what any run measured."""
    rows = session.execute(
        select(Series, Workload, Benchmark)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(Series.id.in_(series_ids))
        .order_by(Series.id)
    )
    return [_touched(series, workload, benchmark, "") for series, workload, benchmark in rows]


def _touched(series: Series, workload: Workload, benchmark: Benchmark, status: str) -> TouchedSeries:
    return TouchedSeries(
        series_id=series.id,
        workload_key=workload.key,
        family=benchmark.family,
        problem=benchmark.problem,
        control=benchmark.control,
        direction=series.direction,
        pool=series.pool,
        status=status,
        flops=workload.flops,
        bytes=workload.bytes,
        unit=series.unit,
    )


def note_verdict(
    session: Session, *, series_id: int, verdict: str, reason: str, detection: dict[str, object], now: datetime
) -> None:
    """Keep the detector's last word on a series, with the facts it rests on."""
    session.execute(
        update(Series)
        .where(Series.id == series_id)
        .values(verdict=verdict, verdict_reason=reason, detection=detection, detected_at=now)
    )


def set_verdict(session: Session, *, series_id: int, verdict: str, reason: str, now: datetime) -> None:
    """Replace the last word on a series; the facts of the detector stay."""
    session.execute(
        update(Series).where(Series.id == series_id).values(verdict=verdict, verdict_reason=reason, detected_at=now)
    )


@dataclass(frozen=True, slots=True)
class ConfirmationCost:
    """How long a proof took: first-parent commits that came meanwhile, and device-seconds."""

    commits: int
    device_s: float


def confirmation_cost(session: Session, *, run: Run) -> ConfirmationCost:
    """Return what it cost to prove what `run`, an interleaved re-run, has proved; earlier attempts count."""
    prefix = run.dedupe_key.rsplit(":", 1)[0]
    device_s = session.scalar(
        select(func.sum(Run.device_s)).where(
            Run.repository_id == run.repository_id, Run.commit_id == run.commit_id, Run.dedupe_key.startswith(prefix)
        )
    )
    here = session.get_one(GitCommit, run.commit_id).position or 0
    newest = session.scalar(select(func.max(GitCommit.position)).where(GitCommit.repository_id == run.repository_id))
    return ConfirmationCost(commits=max((newest or here) - here, 0), device_s=float(device_s or 0.0))


def figures_of(
    session: Session,
    *,
    series_ids: Collection[int],
    since_position: int = 0,
    reasons: Collection[RunReason] = tuple(RunReason),
) -> dict[int, list[Figure]]:
    """Return the good figures of several series in one query, from `since_position` on, on the first-parent line.

    `reasons` are the kinds of runs whose figures count.
    """
    rows = session.execute(
        select(
            Measurement.series_id,
            Measurement.commit_id,
            GitCommit.position,
            Measurement.value_s,
            Measurement.half_width_s,
            Measurement.run_id,
            _processes(),
            Run.environment_id,
        )
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Run, Run.id == Measurement.run_id)
        .where(
            Run.retracted_at.is_(None),
            Run.reason.in_([reason.value for reason in reasons]),
            Measurement.series_id.in_(series_ids),
            Measurement.status == MeasurementStatus.OK,
            Measurement.value_s.is_not(None),
            GitCommit.position.is_not(None),
            GitCommit.position >= since_position,
        )
    )
    found: dict[int, list[Figure]] = {series_id: [] for series_id in series_ids}
    for series_id, commit_id, position, value_s, half_width_s, run_id, processes, environment_id in rows:
        if position is None or value_s is None:  # excluded by the query; said again for the type checker
            continue
        found[series_id].append(
            Figure(
                commit_id=commit_id,
                position=position,
                value_s=value_s,
                half_width_s=half_width_s,
                run_id=run_id,
                processes=processes,
                environment_id=environment_id,
            )
        )
    return found


def _processes() -> ScalarSelect[int]:
    """Count the processes behind a figure: the arrays of block numbers are a few dozen bytes, kept in the row."""
    blocks = func.unnest(Measurement.block_process).table_valued("process").render_derived()
    return select(func.count(func.distinct(blocks.c.process))).correlate(Measurement).scalar_subquery()


def raw_measurements(
    session: Session, *, run_ids: Collection[int], series_ids: Collection[int] | None = None
) -> list[RawMeasurement]:
    """Read the raw blocks of whole runs, or of some series in them, in order of run, series and commit."""
    if not run_ids:
        return []
    wanted = [] if series_ids is None else [Measurement.series_id.in_(series_ids)]
    rows = session.execute(
        select(Measurement, Benchmark.control, Workload.key, Run, Series.comparable_key)
        .options(*(undefer(column) for column in BLOCK_COLUMNS))
        .join(Run, Run.id == Measurement.run_id)
        .join(Series, Series.id == Measurement.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(Measurement.run_id.in_(run_ids), Run.retracted_at.is_(None), *wanted)
        .order_by(Measurement.run_id, Measurement.series_id, Measurement.commit_id)
    )
    return [
        _raw(measurement, control=control, workload_key=key, run=run, comparable_key=comparable_key)
        for measurement, control, key, run, comparable_key in rows
    ]


def _raw(
    measurement: Measurement, *, control: bool, workload_key: str, run: Run, comparable_key: str
) -> RawMeasurement:
    return RawMeasurement(
        series_id=measurement.series_id,
        commit_id=measurement.commit_id,
        run_id=measurement.run_id,
        status=measurement.status,
        control=control,
        workload_key=workload_key,
        clock=measurement.clock,
        environment_id=run.environment_id,
        comparable_key=comparable_key,
        code=_code(measurement),
        identical_to=measurement.identical_to,
        block_process=measurement.block_process,
        block_order=measurement.block_order,
        median_wall_s=_block_medians(measurement.wall_s, measurement.block_size),
        median_cpu_s=_block_medians(measurement.cpu_s, measurement.block_size),
        canary_wall_s=measurement.block_canary_wall_s,
        canary_cpu_s=measurement.block_canary_cpu_s,
        value_s=measurement.value_s,
    )


def _code(measurement: Measurement) -> tuple[str, str] | None:
    recipe_hash = measurement.static_facts.get("recipe_hash")
    return (measurement.code_hash, str(recipe_hash)) if measurement.code_hash and recipe_hash else None


def _block_medians(samples: Sequence[float], sizes: Sequence[int]) -> list[float]:
    medians: list[float] = []
    start = 0
    for size in sizes:
        block = sorted(samples[start : start + size])
        start += size
        middle = len(block) // 2
        medians.append(block[middle] if len(block) % 2 else (block[middle - 1] + block[middle]) / 2 if block else 0.0)
    return medians
