"""Bridges: commits of an old environment measured again in a new one, so that the two series can be compared."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session, aliased

from service.contract import MeasurementStatus, RunReason
from service.domain.bridges import Boundary, boundary_of, changed_facts
from service.domain.points import HISTORY_REASONS
from service.store import lineage
from service.store.regressions import SeriesChange, changes_of
from service.store.tables import Benchmark, Environment, GitCommit, Measurement, Run, Series, Workload


@dataclass(frozen=True, slots=True)
class Unbridged:
    """A series that a run has brought in a new class, where it continues one of the same workload and version."""

    series_id: int
    workload_key: str


def class_of(session: Session, *, run: Run) -> tuple[str, int] | None:
    """Return the comparable key and the harness epoch that a run was measured in; None if it brought nothing."""
    if run.environment_id is None or run.harness_epoch is None:
        return None
    return session.get_one(Environment, run.environment_id).comparable_key, run.harness_epoch


def unbridged(session: Session, *, run: Run, prefix: str) -> Sequence[Unbridged]:
    """List what a run brought in a class other than the one before, less the workloads that a bridge was ordered for.

    A series whose predecessor is of another benchmark version is left out: an older commit holds the older version,
    so nothing that can be measured would join the two.
    """
    before = aliased(Series)
    rows = session.execute(
        select(Series.id, Workload.key)
        .join(Measurement, Measurement.series_id == Series.id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(before, before.id == Series.predecessor_id)
        .where(
            Measurement.run_id == run.id,
            Measurement.commit_id == run.commit_id,
            Measurement.status == MeasurementStatus.OK,
            before.workload_id == Series.workload_id,
        )
        .order_by(Series.id)
    ).all()
    if not rows:
        return []
    ordered = set(
        session.scalars(
            select(func.unnest(Run.workload_keys)).where(
                Run.repository_id == run.repository_id,
                Run.reason == RunReason.BRIDGE,
                Run.dedupe_key.startswith(prefix, autoescape=True),
            )
        )
    )
    return [Unbridged(*row) for row in rows if row[1] not in ordered]


def last_measured(
    session: Session, *, series_ids: Collection[int], but: Collection[int], limit: int
) -> Sequence[GitCommit]:
    """Return the last commits of the line that these series hold and those of `but` do not, the newest first."""
    return session.scalars(
        select(GitCommit)
        .where(
            GitCommit.position.is_not(None),
            GitCommit.id.in_(_measured(series_ids)),
            GitCommit.id.not_in(_measured(but)),
        )
        .order_by(GitCommit.position.desc())
        .limit(limit)
    ).all()


def _measured(series_ids: Collection[int]) -> Select[int]:
    return (
        select(Measurement.commit_id)
        .join(Run, Run.id == Measurement.run_id)
        .where(
            Measurement.series_id.in_(series_ids),
            Measurement.status == MeasurementStatus.OK,
            Run.retracted_at.is_(None),
            Run.reason.in_([reason.value for reason in HISTORY_REASONS]),
        )
    )


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a series takes over from those before it: commits known only by a bridge, and the steps up to its start."""

    commit_ids: frozenset[int] = frozenset()
    changes: tuple[SeriesChange, ...] = ()


def inherited(session: Session, *, series_ids: Collection[int]) -> dict[int, Inheritance]:
    """Return per series with a predecessor the commits that only its bridge brought, and its siblings' steps there.

    The environments before have judged those commits: in the new one they are baseline. A step that they found before
    the new series begins cuts it as well, and stays open there if it is open.
    """
    history = sorted(reason.value for reason in HISTORY_REASONS)
    rows = session.execute(
        select(Series.id, Measurement.commit_id, GitCommit.position, func.bool_or(Run.reason.in_(history)))
        .join(Measurement, Measurement.series_id == Series.id)
        .join(Run, Run.id == Measurement.run_id)
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .where(
            Series.id.in_(series_ids),
            Series.predecessor_id.is_not(None),
            Run.reason.in_([*history, RunReason.BRIDGE.value]),
            Run.retracted_at.is_(None),
            GitCommit.position.is_not(None),
        )
        .group_by(Series.id, Measurement.commit_id, GitCommit.position)
    ).all()
    known: dict[int, set[int]] = {}
    begins: dict[int, float] = {}
    for series_id, commit_id, position, in_history in rows:
        known.setdefault(series_id, set())
        begins.setdefault(series_id, math.inf)
        if in_history and position is not None:
            begins[series_id] = min(position, begins[series_id])
        else:
            known[series_id].add(commit_id)
    others = {key: ids - {key} for key, ids in lineage.siblings(session, series_ids=known).items()}
    changes = changes_of(session, series_ids=frozenset().union(*others.values())) if others else {}
    return {
        series_id: Inheritance(
            commit_ids=frozenset(commit_ids),
            changes=tuple(
                entry
                for other in sorted(others[series_id])
                for entry in changes[other]
                if entry.change.withdrawn_at is None and entry.bad_position < begins[series_id]
            ),
        )
        for series_id, commit_ids in known.items()
    }


def boundaries(session: Session, *, series_ids: Collection[int]) -> dict[int, Boundary]:
    """Return for each series with a predecessor what differs between them: why old points are not compared."""
    old, new_benchmark, old_benchmark = aliased(Series), aliased(Benchmark), aliased(Benchmark)
    new_workload, old_workload = aliased(Workload), aliased(Workload)
    rows = session.execute(
        select(Series, old, new_benchmark.version, old_benchmark.version)
        .join(old, old.id == Series.predecessor_id)
        .join(new_workload, new_workload.id == Series.workload_id)
        .join(new_benchmark, new_benchmark.id == new_workload.benchmark_id)
        .join(old_workload, old_workload.id == old.workload_id)
        .join(old_benchmark, old_benchmark.id == old_workload.benchmark_id)
        .where(Series.id.in_(series_ids))
    ).all()
    keys = {key for series, before, _, _ in rows for key in (series.comparable_key, before.comparable_key)}
    facts: dict[str, list[dict[str, Any]]] = {key: [] for key in keys}
    places = session.execute(
        select(Environment.comparable_key, Environment.facts).where(Environment.comparable_key.in_(keys))
    )
    for key, known in places:
        facts[key].append(known)
    return {
        series.id: boundary_of(
            facts=changed_facts(facts[before.comparable_key], facts[series.comparable_key]),
            keys=(before.comparable_key, series.comparable_key),
            epochs=(before.harness_epoch, series.harness_epoch),
            versions=(old_version, version),
        )
        for series, before, version, old_version in rows
    }
