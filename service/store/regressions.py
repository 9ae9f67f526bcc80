"""Change points and regressions in SQL: found once, grouped once, whoever looks first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, aliased

from service.domain.states import OPEN_REGRESSION_STATES, Direction
from service.store import locks
from service.store.locks import Lock
from service.store.tables import (
    Benchmark,
    Bisection,
    ChangePoint,
    GitCommit,
    Regression,
    Series,
    Workload,
)


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A change point of a series with the positions of its two commits on the first-parent line."""

    change: ChangePoint
    good_position: int
    bad_position: int
    state: str | None  # of its regression


def lock_repository(session: Session, *, repository_id: int) -> None:
    """Serialise detection, grouping and bisection of one repository until the transaction ends."""
    locks.take(session, Lock.FINDINGS, repository_id=repository_id)


def insert_change_point(session: Session, **values: object) -> None:
    """Insert a change point unless one stands at that commit of its series; those taken back stay beside it."""
    session.execute(
        insert(ChangePoint)
        .values(**values)
        .on_conflict_do_nothing(
            index_elements=["series_id", "commit_id"], index_where=ChangePoint.withdrawn_at.is_(None)
        )
    )


def restart_baseline(session: Session, *, series_id: int, previous_commit_id: int, commit_id: int) -> None:
    """Let the segments of a series end at a step that was taken back: the level did move, by the machine's doing."""
    session.execute(
        update(ChangePoint)
        .where(
            ChangePoint.series_id == series_id,
            ChangePoint.previous_commit_id == previous_commit_id,
            ChangePoint.commit_id == commit_id,
            ChangePoint.withdrawn_at.is_not(None),
        )
        .values(restarts_baseline=True)
    )


def changes_of(session: Session, *, series_ids: Collection[int]) -> dict[int, list[SeriesChange]]:
    """Return the change points of several series that end a stable segment, in first-parent order.

    Those are the ones that were not withdrawn, and those that the machine made.
    """
    good, bad = aliased(GitCommit), aliased(GitCommit)
    rows = session.execute(
        select(ChangePoint, good.position, bad.position, Regression.state)
        .join(good, good.id == ChangePoint.previous_commit_id)
        .join(bad, bad.id == ChangePoint.commit_id)
        .outerjoin(Regression, Regression.id == ChangePoint.regression_id)
        .where(
            ChangePoint.series_id.in_(series_ids),
            ChangePoint.withdrawn_at.is_(None) | ChangePoint.restarts_baseline,
            good.position.is_not(None),
            bad.position.is_not(None),
        )
        .order_by(bad.position)
    )
    found: dict[int, list[SeriesChange]] = {series_id: [] for series_id in series_ids}
    for change, good_position, bad_position, state in rows:
        if good_position is None or bad_position is None:  # excluded by the query; said for the type checker
            continue
        found[change.series_id].append(
            SeriesChange(change=change, good_position=good_position, bad_position=bad_position, state=state)
        )
    return found


def unconfirmed_between(session: Session, *, pool: str, good_id: int, bad_id: int) -> Sequence[ChangePoint]:
    """Return the change points of one commit range that wait for an interleaved re-run, locked for this transaction."""
    return session.scalars(
        select(ChangePoint)
        .join(Series, Series.id == ChangePoint.series_id)
        .where(
            ChangePoint.previous_commit_id == good_id,
            ChangePoint.commit_id == bad_id,
            ChangePoint.confirmed_at.is_(None),
            ChangePoint.withdrawn_at.is_(None),
            Series.pool == pool,
        )
        .order_by(ChangePoint.id)
        .with_for_update(of=ChangePoint)
    ).all()


def overlapping_regression(
    session: Session, *, repository_id: int, direction: Direction, good_position: int, bad_position: int
) -> Regression | None:
    """Return the open regression whose commit range overlaps (good_position, bad_position], if there is one."""
    good, bad = aliased(GitCommit), aliased(GitCommit)
    candidates = session.scalars(
        select(Regression)
        .join(good, good.id == Regression.good_commit_id)
        .join(bad, bad.id == Regression.bad_commit_id)
        .where(
            Regression.repository_id == repository_id,
            Regression.direction == direction,
            Regression.state.in_(sorted(OPEN_REGRESSION_STATES)),
            bad.position > good_position,
            good.position < bad_position,
        )
        .order_by(Regression.id)
    )
    return candidates.first()


def insert_regression(session: Session, **values: object) -> Regression:
    """Insert a regression, or return the one that already has this range and direction."""
    session.execute(insert(Regression).values(**values).on_conflict_do_nothing())
    keys = ("repository_id", "direction", "good_commit_id", "bad_commit_id")
    same = {key: values[key] for key in keys}
    return session.scalars(select(Regression).filter_by(**same, part=values.get("part", 0))).one()


def regression_of_range(
    session: Session, *, repository_id: int, direction: str, good_id: int, bad_id: int
) -> Regression | None:
    """Return the regression of exactly this range and direction, if there is one."""
    return session.scalars(
        select(Regression).filter_by(
            repository_id=repository_id, direction=direction, good_commit_id=good_id, bad_commit_id=bad_id, part=0
        )
    ).first()


def changes_in(session: Session, *, regression_id: int) -> Sequence[ChangePoint]:
    """Return the change points of a regression's present life, the clearest first.

    Those that were taken back, or belong to a range it had before it came back, are left out.
    """
    good, bad = aliased(GitCommit), aliased(GitCommit)
    range_good, range_bad = aliased(GitCommit), aliased(GitCommit)
    return session.scalars(
        select(ChangePoint)
        .join(Regression, Regression.id == ChangePoint.regression_id)
        .join(good, good.id == ChangePoint.previous_commit_id)
        .join(bad, bad.id == ChangePoint.commit_id)
        .join(range_good, range_good.id == Regression.good_commit_id)
        .join(range_bad, range_bad.id == Regression.bad_commit_id)
        .where(
            ChangePoint.regression_id == regression_id,
            ChangePoint.withdrawn_at.is_(None),
            bad.position > range_good.position,
            good.position < range_bad.position,
        )
        .order_by(func.abs(ChangePoint.z).desc(), ChangePoint.id)
    ).all()


def open_regressions_of_series(session: Session, *, series_ids: Collection[int]) -> Sequence[Regression]:
    """Return the open regressions that hold a change point of one of these series."""
    return session.scalars(
        select(Regression)
        .join(ChangePoint, ChangePoint.regression_id == Regression.id)
        .where(
            ChangePoint.series_id.in_(series_ids),
            Regression.state.in_(sorted(OPEN_REGRESSION_STATES)),
            Regression.direction == Direction.REGRESSION,
        )
    ).all()


def move_change_points(
    session: Session, *, change_ids: Collection[int], commit_id: int, previous_commit_id: int, regression_id: int
) -> None:
    """Put change points on the commit that bisection named, and under the regression of that commit."""
    session.execute(
        update(ChangePoint)
        .where(ChangePoint.id.in_(change_ids))
        .values(commit_id=commit_id, previous_commit_id=previous_commit_id, regression_id=regression_id)
    )


def workload_keys(session: Session, *, series_ids: Collection[int]) -> dict[int, str]:
    """Return the workload key of each series."""
    rows = session.execute(
        select(Series.id, Workload.key)
        .join(Workload, Workload.id == Series.workload_id)
        .where(Series.id.in_(series_ids))
    )
    return dict(rows.all())


def control_keys(session: Session, *, repository_id: int, problems: Collection[str]) -> list[str]:
    """Return the workload keys of the vendor controls of some problems."""
    return list(
        session.scalars(
            select(Workload.key)
            .join(Benchmark, Benchmark.id == Workload.benchmark_id)
            .where(
                Benchmark.repository_id == repository_id, Benchmark.control.is_(True), Benchmark.problem.in_(problems)
            )
            .order_by(Workload.key)
        )
    )


def running_bisection(session: Session, *, regression_id: int) -> Bisection | None:
    """Return the latest bisection of a regression, if any."""
    return session.scalars(
        select(Bisection).where(Bisection.regression_id == regression_id).order_by(Bisection.generation.desc())
    ).first()


def untraced(session: Session, *, limit: int = 20) -> Sequence[int]:
    """Return the open regressions whose named commit git has not been asked about."""
    return session.scalars(
        select(Regression.id)
        .join(GitCommit, GitCommit.id == Regression.culprit_commit_id)
        .where(
            Regression.state.in_(sorted(OPEN_REGRESSION_STATES)),
            Regression.origin.is_(None) | (Regression.origin["commit"].astext != GitCommit.sha),
        )
        .order_by(Regression.id.desc())
        .limit(limit)
    ).all()
