"""The overview: every living series with its state and its recent figures, and how many are in which state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, literal, select, true
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.selectable import CTE

from service.contract import MeasurementStatus
from service.domain.states import OPEN_REGRESSION_STATES, Direction, RegressionState
from service.store import lineage
from service.store.pages.snapshot import fetch, words
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

SPARK_POINTS = 40
PAGE_SIZE = 250
LOUD_FLOOR = 0.05
NOT_WATCHED = ("cannot_tell", "not_comparable", "bimodal", "environment", "implausible")  # no baseline to hold to


class SeriesState(StrEnum):
    """What an engineer should think of a series now. Nothing is quiet because nothing watches it."""

    REGRESSED = "regressed"
    FAILING = "failing"
    SUSPECTED = "suspected"
    UNGUARDED = "unguarded"
    IMPROVED = "improved"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One line of the overview. `values`, `statuses` and `marks` are parallel and in first-parent order."""

    series_id: int
    repository: str
    family: str
    benchmark: str
    workload: str
    axes: dict[str, Any]
    metric: str
    unit: str
    better: str
    pool: str
    control: bool
    flops: float
    bytes: float
    state: str
    verdict: str | None
    verdict_reason: str | None
    detection: dict[str, Any]
    regression_id: int | None
    effect: float | None
    measured_at: datetime | None
    last_status: str | None
    last_error: str | None
    last_sha: str | None
    values: list[float | None] | None
    statuses: list[str] | None
    commit_ids: list[int] | None
    change_commit_ids: list[int] | None


def _latest() -> Any:
    """The newest measurement of each series: one step on the index (series, commit)."""
    newest = aliased(Measurement)
    commit = aliased(GitCommit)
    return (
        select(
            newest.status.label("status"),
            newest.error.label("error"),
            newest.measured_at.label("measured_at"),
            commit.sha.label("sha"),
        )
        .join(commit, commit.id == newest.commit_id)
        .where(newest.series_id == Series.id, newest.status != MeasurementStatus.IDENTICAL.value)
        .order_by(newest.commit_id.desc(), newest.id.desc())
        .limit(1)
        .lateral("latest")
    )


def _open_change() -> Any:
    """The newest change point of each series that belongs to an open regression or improvement.

    One that was found in the environment before stands as long as its regression does.
    """
    owner = aliased(Series)
    return (
        select(
            Regression.id.label("regression_id"),
            ChangePoint.direction.label("direction"),
            ChangePoint.effect.label("effect"),
        )
        .join(Regression, Regression.id == ChangePoint.regression_id)
        .join(owner, owner.id == ChangePoint.series_id)
        .where(
            lineage.same_workload(owner, Series),
            ChangePoint.withdrawn_at.is_(None),
            Regression.state.in_([state.value for state in OPEN_REGRESSION_STATES]),
        )
        .order_by((ChangePoint.direction == Direction.REGRESSION.value).desc(), ChangePoint.commit_id.desc())
        .limit(1)
        .lateral("open_change")
    )


def _waived() -> Any:
    """Whether somebody accepted a loss of the series as expected: listed until that ends."""
    return exists(
        select(ChangePoint.id)
        .join(Regression, Regression.id == ChangePoint.regression_id)
        .where(
            ChangePoint.series_id == Series.id,
            ChangePoint.withdrawn_at.is_(None),
            Regression.state == RegressionState.EXPECTED.value,
            Regression.direction == Direction.REGRESSION.value,
        )
        .correlate(Series)
    )


def living_series(*, repository: str = "", query: str = "") -> CTE:
    """Every series that no newer series replaced, with its state; the filter's words must all match."""
    latest, change = _latest(), _open_change()
    state = case(
        (change.c.direction == Direction.REGRESSION.value, SeriesState.REGRESSED.value),
        (and_(latest.c.status.is_not(None), latest.c.status != MeasurementStatus.OK.value), SeriesState.FAILING.value),
        (change.c.direction == Direction.IMPROVEMENT.value, SeriesState.IMPROVED.value),
        (latest.c.status.is_(None), SeriesState.UNGUARDED.value),
        (Benchmark.control, SeriesState.QUIET.value),
        (Series.verdict.is_(None), SeriesState.UNGUARDED.value),
        (Series.verdict == "suspected", SeriesState.SUSPECTED.value),
        (_waived(), SeriesState.UNGUARDED.value),
        (Series.verdict.in_(NOT_WATCHED), SeriesState.UNGUARDED.value),
        (Series.detection["detectable"].as_float() > LOUD_FLOOR, SeriesState.UNGUARDED.value),
        else_=SeriesState.QUIET.value,
    )
    statement: Select[*tuple[Any, ...]] = (
        select(
            Series.id.label("series_id"),
            Repository.name.label("repository"),
            Benchmark.family,
            Benchmark.name.label("benchmark"),
            Workload.key.label("workload"),
            Workload.axes,
            Workload.flops,
            Workload.bytes,
            Series.metric,
            Series.unit,
            Series.direction.label("better"),
            Series.pool,
            Benchmark.control,
            state.label("state"),
            Series.verdict,
            Series.verdict_reason,
            Series.detection,
            change.c.regression_id,
            change.c.effect,
            latest.c.measured_at,
            latest.c.status.label("last_status"),
            latest.c.error.label("last_error"),
            latest.c.sha.label("last_sha"),
        )
        .select_from(Series)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .join(Repository, Repository.id == Series.repository_id)
        .join(latest, true(), isouter=True)
        .join(change, true(), isouter=True)
        .where(lineage.living())
    )
    if repository:
        statement = statement.where(Repository.name == repository)
    haystack = func.concat_ws(" ", Repository.name, Benchmark.family, Workload.key, Series.pool, Series.metric)
    for pattern in words(query):
        statement = statement.where(haystack.ilike(pattern, escape="\\"))
    return statement.cte("living")


def series_rows(
    session: Session,
    *,
    repository: str = "",
    query: str = "",
    states: Collection[SeriesState] = (),
    page: int = 0,
    page_size: int = PAGE_SIZE,
) -> tuple[SeriesRow, ...]:
    """Return one page of the overview, by family, benchmark and workload, with each series' last figures."""
    living = living_series(repository=repository, query=query)
    wanted = select(living)
    if states:
        wanted = wanted.where(living.c.state.in_([state.value for state in states]))
    chosen = (
        wanted.order_by(living.c.repository, living.c.family, living.c.benchmark, living.c.workload, living.c.series_id)
        .limit(page_size)
        .offset(page * page_size)
        .cte("chosen")
    )
    recent = (
        select(Measurement.value_s, Measurement.status, Measurement.commit_id, GitCommit.position)
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .where(Measurement.series_id == chosen.c.series_id, GitCommit.position.is_not(None))
        .order_by(Measurement.commit_id.desc(), Measurement.id.desc())
        .limit(SPARK_POINTS)
        .correlate(chosen)  # through two levels: automatic correlation sees only the next one
        .lateral("recent")
    )
    spark = (
        select(
            _in_order(recent.c.value_s, recent).label("values"),
            _in_order(recent.c.status, recent).label("statuses"),
            _in_order(recent.c.commit_id, recent).label("commit_ids"),
        )
        .select_from(recent)
        .lateral("spark")
    )
    steps = (
        select(func.array_agg(ChangePoint.commit_id).label("change_commit_ids"))
        .where(ChangePoint.series_id == chosen.c.series_id, ChangePoint.withdrawn_at.is_(None))
        .lateral("steps")
    )
    statement = (
        select(
            chosen,
            spark.c["values"].label("values"),
            spark.c.statuses,
            spark.c.commit_ids,
            steps.c.change_commit_ids,
        )
        .select_from(chosen)
        .join(spark, true(), isouter=True)
        .join(steps, true(), isouter=True)
        .order_by(chosen.c.repository, chosen.c.family, chosen.c.benchmark, chosen.c.workload, chosen.c.series_id)
    )
    return fetch(session, statement, SeriesRow)


def _in_order(column: ColumnElement[Any], recent: Any) -> ColumnElement[Any]:
    return func.array_agg(aggregate_order_by(column, recent.c.position))


@dataclass(frozen=True, slots=True)
class NewestFigure:
    """The newest good time of a series, with its work and where it was measured."""

    series_id: int
    benchmark: str
    axes: dict[str, Any]
    flops: float
    bytes: float
    value_s: float
    sha: str
    measured_at: datetime
    environment_id: int


def newest_figures(session: Session, *, repository: str = "") -> tuple[NewestFigure, ...]:
    """The newest good times of all living series that declare their work; one step on an index each."""
    successor = aliased(Series)
    newest = (
        select(
            Measurement.value_s,
            Measurement.measured_at,
            GitCommit.sha,
            Run.environment_id,
        )
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Run, Run.id == Measurement.run_id)
        .where(
            Measurement.series_id == Series.id,
            Measurement.status == MeasurementStatus.OK.value,
            Measurement.value_s > 0,
            Run.environment_id.is_not(None),
            Run.retracted_at.is_(None),
        )
        .order_by(Measurement.commit_id.desc(), Measurement.id.desc())
        .limit(1)
        .lateral("newest")
    )
    statement = (
        select(
            Series.id.label("series_id"),
            Benchmark.name.label("benchmark"),
            Workload.axes,
            Workload.flops,
            Workload.bytes,
            newest.c.value_s,
            newest.c.sha,
            newest.c.measured_at,
            newest.c.environment_id,
        )
        .select_from(Series)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .join(newest, true())
        .where(Series.unit == "s", (Workload.flops > 0) | (Workload.bytes > 0))
        .where(~exists().where(successor.predecessor_id == Series.id))
        .order_by(Benchmark.name, Series.id)
    )
    if repository:
        statement = statement.join(Repository, Repository.id == Series.repository_id).where(
            Repository.name == repository
        )
    return fetch(session, statement, NewestFigure)


@dataclass(frozen=True, slots=True)
class Place:
    """An environment: its device, and what is known of it."""

    environment_id: int
    device: str
    facts: dict[str, Any]


def places(session: Session, environment_ids: Collection[int]) -> Mapping[int, Place]:
    """Some environments by id."""
    statement = select(Environment.id.label("environment_id"), Environment.device, Environment.facts)
    found = fetch(session, statement.where(Environment.id.in_(environment_ids)), Place)
    return {place.environment_id: place for place in found}


def state_counts(session: Session, *, repository: str = "", query: str = "") -> Mapping[SeriesState, int]:
    """Count the living series by state."""
    living = living_series(repository=repository, query=query)
    found = session.execute(select(living.c.state, func.count(literal(1))).group_by(living.c.state))
    counts = {str(state): int(count) for state, count in found}
    return {state: counts.get(state.value, 0) for state in SeriesState}


@dataclass(frozen=True, slots=True)
class RepositoryRow:
    """A repository and whether anything was ever ordered for it."""

    name: str
    default_branch: str
    clone_url: str
    pools: list[str]


def repositories(session: Session) -> tuple[RepositoryRow, ...]:
    """All repositories by name."""
    statement = select(Repository.name, Repository.default_branch, Repository.clone_url, Repository.pools)
    return fetch(session, statement.order_by(Repository.name), RepositoryRow)
