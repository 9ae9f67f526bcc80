"""What the read API lists: one query a page, by key, newest or oldest first, never raw samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, Select, select
from sqlalchemy.orm import Session, aliased

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

GOOD, BAD, CULPRIT = aliased(GitCommit), aliased(GitCommit), aliased(GitCommit)
HIDDEN_REPOSITORY_COLUMNS = frozenset({"webhook_secret"})
HIDDEN_RUN_COLUMNS = frozenset({"lease_token", "failure_log"})


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows: those after (or, newest first, before) a key, at most `limit`."""

    limit: int
    cursor: int | None = None


def repositories(session: Session, page: Page) -> Sequence[RowMapping]:
    """Repositories by id, without their secrets."""
    columns = [c for c in Repository.__table__.columns if c.name not in HIDDEN_REPOSITORY_COLUMNS]
    return _oldest_first(session, select(*columns), Repository.id, page)


def _series() -> Select[Any]:
    return (
        select(
            Series.id,
            Repository.name.label("repository"),
            Benchmark.name.label("benchmark"),
            Benchmark.version,
            Benchmark.family,
            Benchmark.problem,
            Benchmark.control,
            Workload.key.label("workload"),
            Workload.axes,
            Workload.flops,
            Workload.bytes,
            Series.metric,
            Series.direction,
            Series.unit,
            Series.pool,
            Series.comparable_key,
            Series.harness_epoch,
            Series.predecessor_id,
            Series.verdict,
            Series.verdict_reason,
            Series.detected_at,
        )
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .join(Repository, Repository.id == Series.repository_id)
    )


def series_list(session: Session, page: Page, *, filters: Mapping[str, str]) -> Sequence[RowMapping]:
    """Series by id, with all that names them."""
    columns = {
        "repository": Repository.name,
        "pool": Series.pool,
        "family": Benchmark.family,
        "workload": Workload.key,
        "metric": Series.metric,
    }
    wanted = _series().where(*(columns[name] == value for name, value in filters.items()))
    return _oldest_first(session, wanted, Series.id, page)


def series_one(session: Session, *, series_id: int) -> RowMapping | None:
    """One series."""
    return session.execute(_series().where(Series.id == series_id)).mappings().first()


def series_points(session: Session, *, series_id: int, page: Page) -> Sequence[RowMapping]:
    """Points of a series in first-parent order, oldest first; the cursor is a position. Every run is a row."""
    statement = (
        select(
            GitCommit.position,
            GitCommit.sha,
            Measurement.id.label("measurement_id"),
            Measurement.run_id,
            Measurement.status,
            Measurement.value_s,
            Measurement.half_width_s,
            Measurement.median_s,
            Measurement.spread,
            Measurement.n,
            Measurement.clock,
            Measurement.flags,
            Measurement.code_hash,
            Measurement.identical_to,
            Measurement.error,
            Measurement.measured_at,
            Environment.fingerprint.label("environment"),
        )
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Run, Run.id == Measurement.run_id)
        .outerjoin(Environment, Environment.id == Run.environment_id)
        .where(Measurement.series_id == series_id, GitCommit.position.is_not(None))
        .order_by(GitCommit.position, Measurement.id)
        .limit(page.limit)
    )
    if page.cursor is not None:
        statement = statement.where(GitCommit.position > page.cursor)
    return session.execute(statement).mappings().all()


def _runs() -> Select[Any]:
    columns = [c for c in Run.__table__.columns if c.name not in HIDDEN_RUN_COLUMNS]
    return (
        select(*columns, GitCommit.sha, GitCommit.position, Repository.name.label("repository"))
        .join(GitCommit, GitCommit.id == Run.commit_id)
        .join(Repository, Repository.id == Run.repository_id)
    )


def run_list(session: Session, page: Page, *, filters: Mapping[str, str]) -> Sequence[RowMapping]:
    """Runs, newest first."""
    columns = {"repository": Repository.name, "pool": Run.pool, "state": Run.state, "sha": GitCommit.sha}
    wanted = _runs().where(*(columns[name] == value for name, value in filters.items()))
    return _newest_first(session, wanted, Run.id, page)


def run_one(session: Session, *, run_id: int) -> RowMapping | None:
    """One run."""
    return session.execute(_runs().where(Run.id == run_id)).mappings().first()


def run_measurements(session: Session, *, run_id: int) -> Sequence[RowMapping]:
    """What a run measured, without the samples."""
    return (
        session.execute(
            select(
                Measurement.id,
                Measurement.series_id,
                GitCommit.sha,
                Workload.key.label("workload"),
                Series.metric,
                Series.unit,
                Measurement.status,
                Measurement.error,
                Measurement.value_s,
                Measurement.half_width_s,
                Measurement.median_s,
                Measurement.spread,
                Measurement.n,
                Measurement.flags,
            )
            .join(Series, Series.id == Measurement.series_id)
            .join(Workload, Workload.id == Series.workload_id)
            .join(GitCommit, GitCommit.id == Measurement.commit_id)
            .where(Measurement.run_id == run_id)
            .order_by(Measurement.id)
        )
        .mappings()
        .all()
    )


def _regressions() -> Select[Any]:
    return (
        select(
            *Regression.__table__.columns,
            Repository.name.label("repository"),
            GOOD.sha.label("good_sha"),
            BAD.sha.label("bad_sha"),
            CULPRIT.sha.label("culprit_sha"),
        )
        .join(Repository, Repository.id == Regression.repository_id)
        .join(GOOD, GOOD.id == Regression.good_commit_id)
        .join(BAD, BAD.id == Regression.bad_commit_id)
        .outerjoin(CULPRIT, CULPRIT.id == Regression.culprit_commit_id)
    )


def regression_list(session: Session, page: Page, *, filters: Mapping[str, str]) -> Sequence[RowMapping]:
    """Regressions and improvements, newest first."""
    columns = {"repository": Repository.name, "state": Regression.state, "direction": Regression.direction}
    wanted = _regressions().where(*(columns[name] == value for name, value in filters.items()))
    return _newest_first(session, wanted, Regression.id, page)


def regression_one(session: Session, *, regression_id: int) -> RowMapping | None:
    """One regression."""
    return session.execute(_regressions().where(Regression.id == regression_id)).mappings().first()


def regression_change_points(session: Session, *, regression_id: int) -> Sequence[RowMapping]:
    """The change points that a regression gathers."""
    return (
        session.execute(
            select(*ChangePoint.__table__.columns, Workload.key.label("workload"))
            .join(Series, Series.id == ChangePoint.series_id)
            .join(Workload, Workload.id == Series.workload_id)
            .where(ChangePoint.regression_id == regression_id)
            .order_by(ChangePoint.id)
        )
        .mappings()
        .all()
    )


def commit_alerts(session: Session, *, sha: str) -> Sequence[RowMapping]:
    """Every regression whose culprit this commit is, or whose range it ends."""
    statement = _regressions().where((CULPRIT.sha == sha) | (BAD.sha == sha)).order_by(Regression.id)
    return session.execute(statement).mappings().all()


def _oldest_first(session: Session, statement: Select[Any], key: Any, page: Page) -> Sequence[RowMapping]:
    if page.cursor is not None:
        statement = statement.where(key > page.cursor)
    return session.execute(statement.order_by(key).limit(page.limit)).mappings().all()


def _newest_first(session: Session, statement: Select[Any], key: Any, page: Page) -> Sequence[RowMapping]:
    if page.cursor is not None:
        statement = statement.where(key < page.cursor)
    return session.execute(statement.order_by(key.desc()).limit(page.limit)).mappings().all()


def commits_by_sha(session: Session, *, sha: str) -> Sequence[RowMapping]:
    """The commit of this full sha in every repository that has it."""
    statement = (
        select(GitCommit.id.label("commit_id"), Repository.name.label("repository"))
        .join(Repository, Repository.id == GitCommit.repository_id)
        .where(GitCommit.sha == sha)
        .order_by(GitCommit.id)
    )
    return session.execute(statement).mappings().all()


def static_missing(session: Session, *, commit_ids: Sequence[int]) -> str | None:
    """Why the newest finished run of these commits could not read machine code, or not all of it; None if it could."""
    newest = (
        select(Run.static_missing)
        .where(Run.commit_id.in_(list(commit_ids)), Run.harness_epoch.is_not(None))
        .order_by(Run.id.desc())
        .limit(1)
    )
    return session.scalar(newest)
