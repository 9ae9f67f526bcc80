"""Bisections and their probes in SQL; a probe is stored before it is acted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.domain.states import BisectionState
from service.store.tables import Bisection, BisectionProbe, GitCommit, Run


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """A probe with the run that measures it."""

    probe: BisectionProbe
    run: Run


def range_commits(
    session: Session, *, repository_id: int, good_position: int, bad_position: int
) -> Sequence[GitCommit]:
    """Return the good end and every first-parent commit after it up to the bad end, in order."""
    return session.scalars(
        select(GitCommit)
        .where(
            GitCommit.repository_id == repository_id,
            GitCommit.position.between(good_position, bad_position),
        )
        .order_by(GitCommit.position)
    ).all()


def bisections_of_run(session: Session, *, run_id: int) -> Sequence[int]:
    """Return the bisections that a run is evidence for."""
    return session.scalars(
        select(BisectionProbe.bisection_id)
        .where(BisectionProbe.run_id == run_id)
        .distinct()
        .order_by(BisectionProbe.bisection_id)
    ).all()


def probes_of(session: Session, *, bisection_id: int) -> list[ProbeRun]:
    """Return the probes of a bisection with their runs, in order."""
    rows = session.execute(
        select(BisectionProbe, Run)
        .join(Run, Run.id == BisectionProbe.run_id)
        .where(BisectionProbe.bisection_id == bisection_id)
        .order_by(BisectionProbe.seq)
    )
    return [ProbeRun(probe=probe, run=run) for probe, run in rows]


def next_generation(session: Session, *, regression_id: int) -> int:
    """Return the number of the next bisection of a regression."""
    last = session.scalar(select(func.max(Bisection.generation)).where(Bisection.regression_id == regression_id))
    return (last or 0) + 1


def running(session: Session) -> Sequence[int]:
    """Return the ids of all bisections that are running."""
    return session.scalars(
        select(Bisection.id).where(Bisection.state == BisectionState.RUNNING).order_by(Bisection.id)
    ).all()


def running_of(session: Session, *, regression_id: int) -> Sequence[int]:
    """Return the ids of the searches of one regression that are not over."""
    return session.scalars(
        select(Bisection.id).where(
            Bisection.regression_id == regression_id,
            Bisection.state.in_([BisectionState.RUNNING, BisectionState.PAUSED]),
        )
    ).all()


def cancel(session: Session, *, bisection_id: int, now: datetime) -> None:
    """Stop asking for probes; what was measured stays."""
    bisection = session.get_one(Bisection, bisection_id, with_for_update=True)
    if bisection.state in {BisectionState.RUNNING, BisectionState.PAUSED}:
        bisection.state = BisectionState.CANCELLED
        bisection.finished_at = now


def commit_ids(session: Session, *, repository_id: int, shas: Sequence[str]) -> dict[str, int]:
    """Return the commit id of each sha."""
    rows = session.execute(
        select(GitCommit.sha, GitCommit.id).where(GitCommit.repository_id == repository_id, GitCommit.sha.in_(shas))
    )
    return dict(rows.all())
