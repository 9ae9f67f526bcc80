"""Runs: the list, and one run with what it measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus
from service.store.pages.snapshot import fetch, fetch_one
from service.store.tables import (
    Benchmark,
    Environment,
    GitCommit,
    Measurement,
    Repository,
    Run,
    Runner,
    Series,
    Workload,
)

PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run without its log."""

    run_id: int
    repository: str
    commit_id: int
    sha: str
    position: int | None
    subject: str
    pool: str
    reason: str
    priority: int
    state: str
    attempt: int
    partner_shas: list[str]
    runner: str | None
    stage: str | None
    done: int | None
    total: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    lease_until: datetime | None
    device_s: float | None
    flags: list[str]
    failure_stage: str | None
    failure_kind: str | None
    failure_reason: str | None


def _rows() -> Select[*tuple[Any, ...]]:
    return (
        select(
            Run.id.label("run_id"),
            Repository.name.label("repository"),
            Run.commit_id,
            GitCommit.sha,
            GitCommit.position,
            GitCommit.subject,
            Run.pool,
            Run.reason,
            Run.priority,
            Run.state,
            Run.attempt,
            Run.partner_shas,
            Runner.name.label("runner"),
            Run.stage,
            Run.done,
            Run.total,
            Run.created_at,
            Run.started_at,
            Run.finished_at,
            Run.lease_until,
            Run.device_s,
            Run.flags,
            Run.failure_stage,
            Run.failure_kind,
            Run.failure_reason,
        )
        .join(Repository, Repository.id == Run.repository_id)
        .join(GitCommit, GitCommit.id == Run.commit_id)
        .join(Runner, Runner.id == Run.runner_id, isouter=True)
    )


def run_rows(
    session: Session,
    *,
    state: str = "",
    reason: str = "",
    pool: str = "",
    before_id: int | None = None,
) -> tuple[RunRow, ...]:
    """Return one page of runs, newest first; the next page starts before the last id of this one."""
    statement = _rows()
    if state:
        statement = statement.where(Run.state == state)
    if reason:
        statement = statement.where(Run.reason == reason)
    if pool:
        statement = statement.where(Run.pool == pool)
    if before_id is not None:
        statement = statement.where(Run.id < before_id)
    return fetch(session, statement.order_by(Run.id.desc()).limit(PAGE_SIZE), RunRow)


def runs_of_commit(session: Session, commit_id: int) -> tuple[RunRow, ...]:
    """Every run ordered for a commit, newest first."""
    return fetch(session, _rows().where(Run.commit_id == commit_id).order_by(Run.id.desc()).limit(PAGE_SIZE), RunRow)


def run_row(session: Session, run_id: int) -> RunRow | None:
    """One run, or None."""
    return fetch_one(session, _rows().where(Run.id == run_id), RunRow)


@dataclass(frozen=True, slots=True)
class RunDetail:
    """What only a run's own page shows."""

    failure_log: str | None
    static_missing: str | None
    commit_failures: list[Any]
    harness_epoch: int | None
    canary_wall_s: float | None
    canary_cpu_s: float | None
    workload_keys: list[str]
    protocol: dict[str, Any]
    device: str | None
    fingerprint: str | None
    comparable_key: str | None
    facts: dict[str, Any] | None


def run_detail(session: Session, run_id: int) -> RunDetail | None:
    """The log, the environment and the failures by commit of one run."""
    statement = (
        select(
            Run.failure_log,
            Run.static_missing,
            Run.commit_failures,
            Run.harness_epoch,
            Run.canary_wall_s,
            Run.canary_cpu_s,
            Run.workload_keys,
            Run.protocol,
            Environment.device,
            Environment.fingerprint,
            Environment.comparable_key,
            Environment.facts,
        )
        .join(Environment, Environment.id == Run.environment_id, isouter=True)
        .where(Run.id == run_id)
    )
    return fetch_one(session, statement, RunDetail)


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A measurement with its workload and commit, without its samples."""

    series_id: int
    run_id: int
    sha: str
    family: str
    benchmark: str
    workload: str
    axes: dict[str, Any]
    pool: str
    metric: str
    unit: str
    better: str
    control: bool
    flops: float
    bytes: float
    status: str
    error: str | None
    n: int
    value_s: float | None
    half_width_s: float | None
    clock: str
    flags: list[str]
    code_hash: str | None
    measured_at: datetime


def _measured() -> Select[*tuple[Any, ...]]:
    return (
        select(
            Measurement.series_id,
            Measurement.run_id,
            GitCommit.sha,
            Benchmark.family,
            Benchmark.name.label("benchmark"),
            Workload.key.label("workload"),
            Workload.axes,
            Series.pool,
            Series.metric,
            Series.unit,
            Series.direction.label("better"),
            Benchmark.control,
            Workload.flops,
            Workload.bytes,
            Measurement.status,
            Measurement.error,
            Measurement.n,
            Measurement.value_s,
            Measurement.half_width_s,
            Measurement.clock,
            Measurement.flags,
            Measurement.code_hash,
            Measurement.measured_at,
        )
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Series, Series.id == Measurement.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .order_by(
            (Measurement.status != MeasurementStatus.OK.value).desc(),
            Benchmark.family,
            Workload.key,
            Measurement.id,
        )
        .limit(5_000)
    )


def measured_in_run(session: Session, run_id: int) -> tuple[MeasuredRow, ...]:
    """Everything one run measured; failures first."""
    return fetch(session, _measured().where(Measurement.run_id == run_id), MeasuredRow)


def measured_at_commit(session: Session, commit_id: int) -> tuple[MeasuredRow, ...]:
    """Everything ever measured of one commit; failures first."""
    return fetch(session, _measured().where(Measurement.commit_id == commit_id), MeasuredRow)


@dataclass(frozen=True, slots=True)
class CommitRow:
    """A commit that the service has seen."""

    commit_id: int
    repository_id: int
    repository: str
    sha: str
    position: int | None
    parents: list[str]
    suite_tree: str | None
    author: str
    author_email: str
    subject: str
    committed_at: datetime
    seen_at: datetime


def commits_like(session: Session, sha: str, *, limit: int = 20) -> tuple[CommitRow, ...]:
    """The commits whose id starts with `sha` (hexadecimal), in every repository."""
    statement = (
        select(
            GitCommit.id.label("commit_id"),
            GitCommit.repository_id,
            Repository.name.label("repository"),
            GitCommit.sha,
            GitCommit.position,
            GitCommit.parents,
            GitCommit.suite_tree,
            GitCommit.author,
            GitCommit.author_email,
            GitCommit.subject,
            GitCommit.committed_at,
            GitCommit.seen_at,
        )
        .join(Repository, Repository.id == GitCommit.repository_id)
        .where(func.starts_with(GitCommit.sha, sha.lower()))
        .order_by(Repository.name, GitCommit.sha)
        .limit(limit)
    )
    return fetch(session, statement, CommitRow)


def known_shas(session: Session, *, repository_id: int, shas: Collection[str]) -> frozenset[str]:
    """Which of these commits have a page; a merge's other parents may never have been seen."""
    found = select(GitCommit.sha).where(GitCommit.repository_id == repository_id, GitCommit.sha.in_(list(shas)))
    return frozenset(session.scalars(found))
