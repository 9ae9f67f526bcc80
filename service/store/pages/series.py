"""One series: its identity, its figures in first-parent order, and the change points found in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from service.contract import MeasurementStatus
from service.domain.states import RunState
from service.store.pages.snapshot import fetch, fetch_one
from service.store.tables import (
    Benchmark,
    ChangePoint,
    Environment,
    GitCommit,
    Measurement,
    Regression,
    Repository,
    Run,
    Series,
    Workload,
)


@dataclass(frozen=True, slots=True)
class SeriesHead:
    """What a series is: the typed key whose every part must match for two figures to be compared."""

    series_id: int
    repository_id: int
    repository: str
    family: str
    benchmark: str
    problem: str
    version: int
    workload: str
    axes: dict[str, Any]
    flops: float
    bytes: float
    metric: str
    unit: str
    better: str
    pool: str
    control: bool
    comparable_key: str
    harness_epoch: int
    predecessor_id: int | None
    verdict: str | None
    verdict_reason: str | None
    detection: dict[str, Any]
    detected_at: datetime | None


def _identity() -> Select[*tuple[Any, ...]]:
    return (
        select(
            Series.id.label("series_id"),
            Series.repository_id,
            Repository.name.label("repository"),
            Benchmark.family,
            Benchmark.name.label("benchmark"),
            Benchmark.problem,
            Benchmark.version,
            Workload.key.label("workload"),
            Workload.axes,
            Workload.flops,
            Workload.bytes,
            Series.metric,
            Series.unit,
            Series.direction.label("better"),
            Series.pool,
            Benchmark.control,
            Series.comparable_key,
            Series.harness_epoch,
            Series.predecessor_id,
            Series.verdict,
            Series.verdict_reason,
            Series.detection,
            Series.detected_at,
        )
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .join(Repository, Repository.id == Series.repository_id)
    )


def series_head(session: Session, series_id: int) -> SeriesHead | None:
    """The series with this id, or None."""
    return fetch_one(session, _identity().where(Series.id == series_id), SeriesHead)


def controls_beside(session: Session, head: SeriesHead) -> tuple[SeriesHead, ...]:
    """Vendor-library series of the same family, pool and environment: what must not move when only our code did."""
    statement = _identity().where(
        Series.repository_id == head.repository_id,
        Benchmark.family == head.family,
        Benchmark.control,
        Series.pool == head.pool,
        Series.comparable_key == head.comparable_key,
        Series.harness_epoch == head.harness_epoch,
        Series.id != head.series_id,
    )
    return fetch(session, statement.order_by(Workload.key).limit(20), SeriesHead)


@dataclass(frozen=True, slots=True)
class ControlFigure:
    """What the vendor library needed for the same work, in the same run and at the same commit."""

    series_id: int
    workload: str
    value_s: float


def control_of_run(session: Session, head: SeriesHead, *, run_id: int, commit_id: int) -> ControlFigure | None:
    """The fastest control that solves the same problem on the same axes; None for a control itself, or without one."""
    statement = (
        select(Series.id.label("series_id"), Workload.key.label("workload"), Measurement.value_s)
        .join(Series, Series.id == Measurement.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(
            Measurement.run_id == run_id,
            Measurement.commit_id == commit_id,
            Measurement.status == MeasurementStatus.OK.value,
            Measurement.value_s > 0,
            Series.metric == head.metric,
            Series.id != head.series_id,
            Benchmark.control,
            Benchmark.problem == head.problem,
            Workload.axes == head.axes,
        )
        .order_by(Measurement.value_s)
        .limit(1)
    )
    return None if head.control else fetch_one(session, statement, ControlFigure)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run was measured: the device and every fact of its environment."""

    device: str
    facts: dict[str, Any]


def place_of_run(session: Session, run_id: int) -> Place | None:
    """The environment of a run; None when it reported none."""
    statement = (
        select(Environment.device, Environment.facts)
        .join(Run, Run.environment_id == Environment.id)
        .where(Run.id == run_id)
    )
    return fetch_one(session, statement, Place)


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One measurement of the series, without its samples. `position` is None off the first-parent line."""

    measurement_id: int
    commit_id: int
    sha: str
    position: int | None
    subject: str
    author: str
    committed_at: datetime
    status: str
    error: str | None
    value_s: float | None
    half_width_s: float | None
    spread: float | None
    n: int
    clock: str
    flags: list[str]
    code_hash: str | None
    identical_to: str | None
    run_id: int
    run_reason: str
    device: str | None
    fingerprint: str | None
    measured_at: datetime


def figures_of(session: Session, series_id: int) -> tuple[FigureRow, ...]:
    """Every measurement of a series in first-parent order; those off the line come last."""
    statement = (
        select(
            Measurement.id.label("measurement_id"),
            Measurement.commit_id,
            GitCommit.sha,
            GitCommit.position,
            GitCommit.subject,
            GitCommit.author,
            GitCommit.committed_at,
            Measurement.status,
            Measurement.error,
            Measurement.value_s,
            Measurement.half_width_s,
            Measurement.spread,
            Measurement.n,
            Measurement.clock,
            Measurement.flags,
            Measurement.code_hash,
            Measurement.identical_to,
            Measurement.run_id,
            Run.reason.label("run_reason"),
            Environment.device,
            Environment.fingerprint,
            Measurement.measured_at,
        )
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Run, Run.id == Measurement.run_id)
        .join(Environment, Environment.id == Run.environment_id, isouter=True)
        .where(Measurement.series_id == series_id)
        .order_by(GitCommit.position.asc().nulls_last(), Measurement.id)
    )
    return fetch(session, statement, FigureRow)


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A change point of a series, and the regression it belongs to."""

    change_point_id: int
    series_id: int
    commit_id: int
    sha: str
    position: int | None
    subject: str
    previous_sha: str
    previous_position: int | None
    direction: str
    before_s: float
    after_s: float
    effect: float
    effect_low: float
    effect_high: float
    z: float
    p_value: float
    detector: str
    detector_version: int
    confirmed_at: datetime | None
    withdrawn_at: datetime | None
    regression_id: int | None
    regression_state: str | None


def changes_of(session: Session, series_id: int) -> tuple[ChangeRow, ...]:
    """The change points of a series in first-parent order, withdrawn ones included."""
    previous = aliased(GitCommit)
    statement = (
        select(
            ChangePoint.id.label("change_point_id"),
            ChangePoint.series_id,
            ChangePoint.commit_id,
            GitCommit.sha,
            GitCommit.position,
            GitCommit.subject,
            previous.sha.label("previous_sha"),
            previous.position.label("previous_position"),
            ChangePoint.direction,
            ChangePoint.before_s,
            ChangePoint.after_s,
            ChangePoint.effect,
            ChangePoint.effect_low,
            ChangePoint.effect_high,
            ChangePoint.z,
            ChangePoint.p_value,
            ChangePoint.detector,
            ChangePoint.detector_version,
            ChangePoint.confirmed_at,
            ChangePoint.withdrawn_at,
            ChangePoint.regression_id,
            Regression.state.label("regression_state"),
        )
        .join(GitCommit, GitCommit.id == ChangePoint.commit_id)
        .join(previous, previous.id == ChangePoint.previous_commit_id)
        .join(Regression, Regression.id == ChangePoint.regression_id, isouter=True)
        .where(ChangePoint.series_id == series_id)
        .order_by(GitCommit.position.asc().nulls_last(), ChangePoint.id)
    )
    return fetch(session, statement, ChangeRow)


@dataclass(frozen=True, slots=True)
class FailedRunRow:
    """A run of this pool that failed as a whole: no series of its commit got a figure from it."""

    run_id: int
    commit_id: int
    sha: str
    position: int
    subject: str
    stage: str | None
    reason: str | None


def failed_runs_beside(session: Session, head: SeriesHead, *, limit: int = 500) -> tuple[FailedRunRow, ...]:
    """The newest failed runs of the series' repository and pool, for the marks on its chart."""
    statement = (
        select(
            Run.id.label("run_id"),
            Run.commit_id,
            GitCommit.sha,
            GitCommit.position,
            GitCommit.subject,
            Run.failure_stage.label("stage"),
            Run.failure_reason.label("reason"),
        )
        .join(GitCommit, GitCommit.id == Run.commit_id)
        .where(
            Run.repository_id == head.repository_id,
            Run.pool == head.pool,
            Run.state == RunState.FAILED.value,
            GitCommit.position.is_not(None),
        )
        .order_by(Run.id.desc())
        .limit(limit)
    )
    return fetch(session, statement, FailedRunRow)
