"""What detection asks about a series beside its points: what was settled before, where it stands, where it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session, aliased

from service.contract import RunReason
from service.domain.points import HISTORY_REASONS
from service.domain.states import FINAL_RUN_STATES, RunState
from service.store import lineage
from service.store.tables import (
    Benchmark,
    ChangePoint,
    Environment,
    GitCommit,
    Measurement,
    Run,
    Series,
    Workload,
)

RETRACTED = "run {run_id} was retracted: {reason}"
_RETRACTED_PATTERN = "run % was retracted: %"

Pair = tuple[int, int]  # ids of the commits before and after a step


@dataclass(frozen=True, slots=True)
class Ending:
    """A series that the newest run of its kind did not bring: its last commit, and the one that came without it."""

    series_id: int
    last_position: int
    last_sha: str
    missed_position: int
    missed_sha: str


def settled_pairs(session: Session, *, series_ids: Collection[int]) -> dict[int, dict[Pair, str]]:
    """Return per series the steps that were taken back, with the reason; one that a retraction took back is open."""
    rows = session.execute(
        select(
            ChangePoint.series_id, ChangePoint.previous_commit_id, ChangePoint.commit_id, ChangePoint.withdrawn_reason
        ).where(
            ChangePoint.series_id.in_(series_ids),
            ChangePoint.withdrawn_at.is_not(None),
            ChangePoint.withdrawn_reason.is_(None) | ~ChangePoint.withdrawn_reason.like(_RETRACTED_PATTERN),
        )
    )
    found: dict[int, dict[Pair, str]] = {series_id: {} for series_id in series_ids}
    for series_id, good_id, bad_id, reason in rows:
        found[series_id][good_id, bad_id] = reason or "taken back"
    return found


def families_watched(session: Session, *, repository_id: int, pool: str) -> Mapping[str, int]:
    """Count the living series of a pool per kernel family, vendor controls left out."""
    families = session.scalars(
        select(Benchmark.family)
        .join(Workload, Workload.benchmark_id == Benchmark.id)
        .join(Series, Series.workload_id == Workload.id)
        .where(
            Series.repository_id == repository_id,
            Series.pool == pool,
            Benchmark.control.is_(False),
            lineage.living(),
        )
    )
    return Counter(families)


def differing_facts(session: Session, *, before: Collection[int], after: Collection[int]) -> tuple[str, ...]:
    """Name the facts of the machine that differ between two disjoint sets of environments."""
    rows = session.execute(select(Environment.id, Environment.facts).where(Environment.id.in_([*before, *after])))
    facts: dict[int, dict[str, Any]] = dict(tuple(row) for row in rows)
    old = {(name, str(value)) for env in before for name, value in facts.get(env, {}).items()}
    new = {(name, str(value)) for env in after for name, value in facts.get(env, {}).items()}
    names = sorted({name for name, _ in old ^ new})
    return tuple(names) or ("the machine's fingerprint",)


def finished_confirmations(session: Session, *, pool: str, good_sha: str, bad_id: int) -> int:
    """Count the first attempts of interleaved runs of two commits that have ended: the next one needs another key."""
    return (
        session.scalar(
            select(func.count()).where(
                Run.pool == pool,
                Run.reason == RunReason.CONFIRM,
                Run.commit_id == bad_id,
                Run.partner_shas[1] == good_sha,
                Run.dedupe_key.endswith(":1"),
                Run.state.in_([state.value for state in FINAL_RUN_STATES]),
            )
        )
        or 0
    )


def endings(session: Session, *, run: Run) -> list[Ending]:
    """List the living series of a run's pool that end before the newest whole run of the kind that measured them.

    A run that was ordered for some workloads only, or brought nothing, proves nothing; another epoch or environment
    has series of its own. A failing measurement is a sign of life: it is listed as failing.
    """
    ran = [Run.repository_id == run.repository_id, Run.pool == run.pool, Run.retracted_at.is_(None)]
    newest = session.execute(
        select(Run, GitCommit.position, GitCommit.sha, Environment.comparable_key)
        .join(GitCommit, GitCommit.id == Run.commit_id)
        .join(Environment, Environment.id == Run.environment_id)
        .where(
            *ran,
            Run.state == RunState.REPORTED,
            Run.reason.in_([reason.value for reason in HISTORY_REASONS]),
            func.cardinality(Run.workload_keys) == 0,
            GitCommit.position.is_not(None),
            exists().where(Measurement.run_id == Run.id, Measurement.commit_id == Run.commit_id),
        )
        .ext(distinct_on(Run.reason))
        .order_by(Run.reason, GitCommit.position.desc(), Run.id.desc())
    ).all()
    found: dict[int, Ending] = {}
    for last, position, sha, comparable_key in newest:
        for series_id, last_position, last_sha in _unmeasured(session, run=last, comparable_key=comparable_key):
            if position is not None and last_position < position:
                found[series_id] = Ending(series_id, last_position, last_sha, position, sha)
    return [found[series_id] for series_id in sorted(found)]


def _unmeasured(session: Session, *, run: Run, comparable_key: str) -> list[tuple[int, int, str]]:
    """Return (series, last position, last sha) of living series that runs like this one brought, but not this one."""
    alike = aliased(Run)
    measured_alike = (
        select(Measurement.series_id)
        .join(alike, alike.id == Measurement.run_id)
        .where(alike.repository_id == run.repository_id, alike.pool == run.pool, alike.reason == run.reason)
    )
    rows = session.execute(
        select(Series.id, GitCommit.position, GitCommit.sha)
        .join(Measurement, Measurement.series_id == Series.id)
        .join(Run, Run.id == Measurement.run_id)
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .where(
            Series.repository_id == run.repository_id,
            Series.pool == run.pool,
            Series.comparable_key == comparable_key,
            Series.harness_epoch == run.harness_epoch,
            Series.id.in_(measured_alike),
            Series.id.not_in(select(Measurement.series_id).where(Measurement.run_id == run.id)),
            lineage.living(),
            Run.retracted_at.is_(None),
            Run.reason.in_([reason.value for reason in HISTORY_REASONS]),
            GitCommit.position.is_not(None),
        )
        .ext(distinct_on(Series.id))
        .order_by(Series.id, GitCommit.position.desc())
    )
    return [(series_id, position or 0, sha) for series_id, position, sha in rows]
