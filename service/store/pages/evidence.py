"""Evidence for one regression: raw samples of both sides, environments, code, controls, probes, cost."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from service.contract import MeasurementStatus, RunReason
from service.store.pages.snapshot import fetch
from service.store.tables import (
    Bisection,
    BisectionProbe,
    Environment,
    GitCommit,
    Measurement,
    Run,
)

SIDE_MEASUREMENTS = 12


@dataclass(frozen=True, slots=True)
class SideRow:
    """One measurement of one side with every raw sample, its blocks and where it was taken."""

    measurement_id: int
    commit_id: int
    sha: str
    run_id: int
    run_reason: str
    value_s: float | None
    half_width_s: float | None
    median_s: float | None
    clock: str
    wall_s: list[float]
    cpu_s: list[float]
    block_size: list[int]
    block_process: list[int]
    block_canary_wall_s: list[float]
    block_canary_cpu_s: list[float]
    flags: list[str]
    run_flags: list[str]
    code_hash: str | None
    output_hash: str | None
    static_facts: dict[str, Any]
    measured_at: datetime
    device_s: float | None
    environment_id: int | None
    device: str | None
    fingerprint: str | None
    facts: dict[str, Any] | None


def side(session: Session, *, series_id: int, commit_id: int) -> tuple[SideRow, ...]:
    """The newest measurements of one commit in one series, raw samples included."""
    statement = (
        select(
            Measurement.id.label("measurement_id"),
            Measurement.commit_id,
            GitCommit.sha,
            Measurement.run_id,
            Run.reason.label("run_reason"),
            Measurement.value_s,
            Measurement.half_width_s,
            Measurement.median_s,
            Measurement.clock,
            Measurement.wall_s,
            Measurement.cpu_s,
            Measurement.block_size,
            Measurement.block_process,
            Measurement.block_canary_wall_s,
            Measurement.block_canary_cpu_s,
            Measurement.flags,
            Run.flags.label("run_flags"),
            Measurement.code_hash,
            Measurement.output_hash,
            Measurement.static_facts,
            Measurement.measured_at,
            Run.device_s,
            Run.environment_id,
            Environment.device,
            Environment.fingerprint,
            Environment.facts,
        )
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Run, Run.id == Measurement.run_id)
        .join(Environment, Environment.id == Run.environment_id, isouter=True)
        .where(
            Measurement.series_id == series_id,
            Measurement.commit_id == commit_id,
            Measurement.status == MeasurementStatus.OK.value,
        )
        .order_by(Measurement.id.desc())
        .limit(SIDE_MEASUREMENTS)
    )
    return fetch(session, statement, SideRow)


@dataclass(frozen=True, slots=True)
class RangeCommit:
    """A commit of the range: good end first, bad end last."""

    commit_id: int
    sha: str
    position: int
    subject: str
    author: str
    committed_at: datetime
    parents: list[str]
    suite_tree: str | None
    run_id: int | None
    run_state: str | None


def _newest_run(column: InstrumentedAttribute[Any]) -> Any:
    of_commit = select(column).where(Run.commit_id == GitCommit.id, Run.reason != RunReason.CANARY)
    return of_commit.order_by(Run.id.desc()).limit(1).scalar_subquery()


def range_commits(
    session: Session, *, repository_id: int, good_position: int, bad_position: int, limit: int = 200
) -> tuple[RangeCommit, ...]:
    """The first-parent commits from the good end to the bad end, at most `limit`."""
    statement = (
        select(
            GitCommit.id.label("commit_id"),
            GitCommit.sha,
            GitCommit.position,
            GitCommit.subject,
            GitCommit.author,
            GitCommit.committed_at,
            GitCommit.parents,
            GitCommit.suite_tree,
            _newest_run(Run.id).label("run_id"),
            _newest_run(Run.state).label("run_state"),
        )
        .where(
            GitCommit.repository_id == repository_id,
            GitCommit.position.between(good_position, bad_position),
        )
        .order_by(GitCommit.position)
        .limit(limit)
    )
    return fetch(session, statement, RangeCommit)


def positions_of(session: Session, *, repository_id: int, shas: Collection[str]) -> list[int]:
    """The places of some commits on the first-parent line, less those that a force push took off it."""
    statement = select(GitCommit.position).where(GitCommit.repository_id == repository_id, GitCommit.sha.in_(shas))
    return [position for position in session.scalars(statement) if position is not None]


@dataclass(frozen=True, slots=True)
class ControlRow:
    """A vendor-library series on both sides; medians over the runs of each commit."""

    series_id: int
    before_s: float | None
    after_s: float | None
    runs_before: int
    runs_after: int


def control_sides(
    session: Session, *, series_ids: Collection[int], good_commit_id: int, bad_commit_id: int
) -> tuple[ControlRow, ...]:
    """How the controls stood at both ends of the range."""
    good = Measurement.commit_id == good_commit_id
    bad = Measurement.commit_id == bad_commit_id
    statement = (
        select(
            Measurement.series_id,
            _median(good).label("before_s"),
            _median(bad).label("after_s"),
            func.count(case((good, 1))).label("runs_before"),
            func.count(case((bad, 1))).label("runs_after"),
        )
        .where(
            Measurement.series_id.in_(list(series_ids)),
            Measurement.commit_id.in_([good_commit_id, bad_commit_id]),
            Measurement.status == MeasurementStatus.OK.value,
        )
        .group_by(Measurement.series_id)
    )
    return fetch(session, statement, ControlRow)


def _median(side_is: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.percentile_cont(0.5).within_group(Measurement.value_s.asc()).filter(side_is)


@dataclass(frozen=True, slots=True)
class BisectionRow:
    """One search for a culprit."""

    bisection_id: int
    generation: int
    state: str
    pool: str
    series_id: int
    commit_shas: list[str]
    problem: dict[str, Any]
    outcome: dict[str, Any] | None
    verdict: str | None
    budget_s: float
    spent_s: float
    created_at: datetime
    finished_at: datetime | None


def bisections_of(session: Session, regression_id: int) -> tuple[BisectionRow, ...]:
    """The searches of a regression, the newest generation first."""
    statement = (
        select(
            Bisection.id.label("bisection_id"),
            Bisection.generation,
            Bisection.state,
            Bisection.pool,
            Bisection.series_id,
            Bisection.commit_shas,
            Bisection.problem,
            Bisection.outcome,
            Bisection.verdict,
            Bisection.budget_s,
            Bisection.spent_s,
            Bisection.created_at,
            Bisection.finished_at,
        )
        .where(Bisection.regression_id == regression_id)
        .order_by(Bisection.generation.desc())
    )
    return fetch(session, statement, BisectionRow)


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """One batch of a search, with the run that measured it and the belief after it."""

    bisection_id: int
    seq: int
    run_id: int | None
    position: int
    partners: list[int]
    phase: str
    posterior: list[float] | None
    finished_at: datetime | None
    run_reason: str | None
    run_state: str | None
    device_s: float | None
    failure_reason: str | None


def probes_of(session: Session, bisection_ids: Collection[int]) -> tuple[ProbeRow, ...]:
    """The batches of these searches in order."""
    statement = (
        select(
            BisectionProbe.bisection_id,
            BisectionProbe.seq,
            BisectionProbe.run_id,
            BisectionProbe.position,
            BisectionProbe.partners,
            BisectionProbe.phase,
            BisectionProbe.posterior,
            BisectionProbe.finished_at,
            Run.reason.label("run_reason"),
            Run.state.label("run_state"),
            Run.device_s,
            Run.failure_reason,
        )
        .join(Run, Run.id == BisectionProbe.run_id, isouter=True)
        .where(BisectionProbe.bisection_id.in_(list(bisection_ids)))
        .order_by(BisectionProbe.bisection_id, BisectionProbe.seq)
    )
    return fetch(session, statement, ProbeRow)
