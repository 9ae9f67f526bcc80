"""Series that continue each other: one workload of one pool through environments, epochs and versions.

Equal names are what "the same" means across a change of the key: repository, benchmark name, workload key, metric and
pool. Kin are ordered by where their history begins on the first-parent line, never by the order in which reports came
in, so late and racing reports end in the same links. Exactly one of them lives: the one that the newest push or
nightly run brought. A machine that returns to an environment therefore brings its old series back to life.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, exists, func, literal, or_, select, update
from sqlalchemy.orm import Session, aliased

from service.contract import RunReason
from service.domain.points import HISTORY_REASONS
from service.store import locks
from service.store.locks import Lock
from service.store.tables import Benchmark, GitCommit, Measurement, Run, Series, Workload

LIFE_REASONS = (RunReason.PUSH.value, RunReason.NIGHTLY.value)
"""Runs that say which environment the pool has now: those that come by themselves, at the tip."""


def living() -> ColumnElement[bool]:
    """Whether no kin of `Series` was brought by a later push or nightly run; correlates with the enclosing query."""
    kin, kin_workload, kin_benchmark = aliased(Series), aliased(Workload), aliased(Benchmark)
    own_workload, own_benchmark = aliased(Workload), aliased(Benchmark)
    later = exists(
        select(literal(1))
        .select_from(own_workload)
        .join(own_benchmark, own_benchmark.id == own_workload.benchmark_id)
        .join(
            kin_benchmark,
            and_(kin_benchmark.repository_id == own_benchmark.repository_id, kin_benchmark.name == own_benchmark.name),
        )
        .join(
            kin_workload,
            and_(kin_workload.benchmark_id == kin_benchmark.id, kin_workload.key == own_workload.key),
        )
        .join(kin, kin.workload_id == kin_workload.id)
        .where(
            own_workload.id == Series.workload_id,
            kin.metric == Series.metric,
            kin.pool == Series.pool,
            kin.history_at.is_not(None),
            or_(
                Series.history_at.is_(None),
                kin.history_at > Series.history_at,
                and_(kin.history_at == Series.history_at, kin.id > Series.id),
            ),
        )
        .correlate(Series)
    )
    return ~later


def lock(session: Session, *, repository_id: int) -> None:
    """Serialise the making of new series of one repository until the transaction ends: each sees the others' rows."""
    locks.take(session, Lock.LINEAGE, repository_id=repository_id)


def note_history(session: Session, *, series_ids: Collection[int], measured_at: datetime) -> None:
    """Note that a run of the history brought these series; the latest moment stays, whatever the order of reports."""
    session.execute(
        update(Series)
        .where(Series.id.in_(series_ids), or_(Series.history_at.is_(None), Series.history_at < measured_at))
        .values(history_at=measured_at)
        .execution_options(synchronize_session=False)
    )


def without_history(session: Session, *, series_ids: Collection[int]) -> Sequence[int]:
    """Return those of these series that no run of the history has brought yet."""
    return session.scalars(select(Series.id).where(Series.id.in_(series_ids), Series.history_at.is_(None))).all()


def relink(session: Session, *, series_ids: Collection[int]) -> None:
    """Order the kin of these series by where their history begins, and point each at the one before it.

    A series that only other runs have brought (a bridge, a pull request) begins at its first commit all the same; one
    that was never on the line stands last.
    """
    begins = (
        select(
            Measurement.series_id,
            func.min(GitCommit.position).filter(Run.reason.in_(_history())).label("history"),
            func.min(GitCommit.position).label("anywhere"),
            func.min(Measurement.measured_at).label("moment"),
        )
        .join(Run, Run.id == Measurement.run_id)
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Series, Series.id == Measurement.series_id)
        .where(Series.workload_id.in_(_kindred_workloads(series_ids)))
        .group_by(Measurement.series_id)
        .subquery()
    )
    rows = session.execute(
        _named()
        .add_columns(Series.predecessor_id)
        .join(begins, begins.c.series_id == Series.id)
        .order_by(
            *_NAME,
            func.coalesce(begins.c.history, begins.c.anywhere).asc().nulls_last(),
            begins.c.moment,
            Series.id,
        )
    ).all()
    changed: list[dict[str, int | None]] = []
    for _, members in groupby(rows, key=lambda row: tuple(row[1:-1])):
        chain = list(members)
        wanted = [None, *(before[0] for before, _ in pairwise(chain))]
        changed += [
            {"id": row[0], "predecessor_id": before}
            for row, before in zip(chain, wanted, strict=True)
            if row[-1] != before
        ]
    if changed:
        session.execute(update(Series), changed)


def siblings(session: Session, *, series_ids: Collection[int]) -> dict[int, frozenset[int]]:
    """Return per series those of the same workload, version included, in every environment; itself among them.

    Commits that were measured interleaved are comparable with each other in whatever environment they were measured,
    so the effect between them speaks for the series of every environment. Across versions nothing does.
    """
    one, other = aliased(Series), aliased(Series)
    pairs = select(one.id, other.id).join(other, same_workload(one, other)).where(one.id.in_(series_ids))
    found: dict[int, set[int]] = {series_id: {series_id} for series_id in series_ids}
    for series_id, sibling in session.execute(pairs):
        found[series_id].add(sibling)
    return {series_id: frozenset(members) for series_id, members in found.items()}


def same_workload(one: type[Series], other: type[Series]) -> ColumnElement[bool]:
    """Whether two series follow the same workload of one version on one pool, in whatever environments."""
    columns = ("workload_id", "metric", "unit", "direction", "pool")
    return and_(*(getattr(one, name) == getattr(other, name) for name in columns))


def stand_ins(session: Session, *, series_ids: Collection[int], among: Collection[int]) -> dict[int, int]:
    """Return for each series the one of `among` that speaks for it: itself, else a sibling; none for some."""
    found = {}
    for series_id, members in siblings(session, series_ids=series_ids).items():
        speakers = members & set(among)
        if speakers:
            found[series_id] = series_id if series_id in speakers else max(speakers)
    return found


def kin_of(session: Session, *, series_id: int) -> Sequence[int]:
    """Return the ids of a series and its kin, of every environment and version."""
    name = session.execute(_named().where(Series.id == series_id)).one()[1:]
    same = [column == value for column, value in zip(_NAME, name, strict=True)]
    return [row[0] for row in session.execute(_named().where(*same).order_by(Series.id))]


def living_kin(session: Session, *, series_id: int) -> int | None:
    """Return the series in which the history of this one goes on now; None if that is this one."""
    alive = select(Series.id).where(Series.id.in_(kin_of(session, series_id=series_id)), living())
    found = session.scalars(alive.order_by(Series.history_at.desc().nulls_last(), Series.id.desc())).all()
    return None if series_id in found or not found else found[0]


_NAME = (Series.repository_id, Benchmark.name, Workload.key, Series.metric, Series.pool)


def _named() -> Select[*tuple[Any, ...]]:
    return (
        select(Series.id, *_NAME)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
    )


def _kindred_workloads(series_ids: Collection[int]) -> Select[int]:
    """Workloads of the same names as those of some series, of every benchmark version."""
    mine, mine_benchmark, mine_series = aliased(Workload), aliased(Benchmark), aliased(Series)
    theirs, their_benchmark = aliased(Workload), aliased(Benchmark)
    return (
        select(theirs.id)
        .join(their_benchmark, their_benchmark.id == theirs.benchmark_id)
        .join(
            mine_benchmark,
            and_(
                mine_benchmark.repository_id == their_benchmark.repository_id,
                mine_benchmark.name == their_benchmark.name,
            ),
        )
        .join(mine, and_(mine.benchmark_id == mine_benchmark.id, mine.key == theirs.key))
        .join(mine_series, mine_series.workload_id == mine.id)
        .where(mine_series.id.in_(series_ids))
    )


def _history() -> list[str]:
    return sorted(reason.value for reason in HISTORY_REASONS)
