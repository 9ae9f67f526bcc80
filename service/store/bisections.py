"""Bisections and their probes in SQL; a probe is stored before it is acted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session, aliased

from service.contract import RunReason
from service.domain.states import BisectionState
from service.store.tables import Bisection, BisectionProbe, ChangePoint, GitCommit, Regression, Run


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


@dataclass(frozen=True, slots=True)
class Cost:
    """Device-seconds that a regression took: to confirm it, and to search its range. No run counts twice."""

    confirming_s: float
    searching_s: float

    @property
    def total_s(self) -> float:
        """Both together."""
        return self.confirming_s + self.searching_s


def cost_of(session: Session, *, regression_id: int) -> Cost:
    """Add up the runs behind a regression, each once, under the reason that it was ordered for.

    A search takes the run that confirmed the change as its first batch, and a search that is repeated takes all batches
    of the one before. Every attempt to confirm counts: the runs that held both ends of a searched range or of a step.
    """
    search = select(Bisection.id).where(Bisection.regression_id == regression_id)
    probed = select(BisectionProbe.run_id).where(BisectionProbe.bisection_id.in_(search))
    proved = select(ChangePoint.confirmed_run_id).where(ChangePoint.regression_id == regression_id)
    attempts = (
        select(Run.id)
        .join(GitCommit, GitCommit.id == Run.commit_id)
        .where(
            Run.repository_id.in_(select(Regression.repository_id).where(Regression.id == regression_id)),
            Run.reason == RunReason.CONFIRM,
            tuple_(Run.partner_shas[1], GitCommit.sha).in_(_ends_of(session, regression_id=regression_id)),
        )
    )
    rows = session.execute(
        select(Run.reason, func.coalesce(func.sum(Run.device_s), 0.0))
        .where(Run.id.in_(probed) | Run.id.in_(proved) | Run.id.in_(attempts))
        .group_by(Run.reason)
    )
    spent = {str(reason): device_s or 0.0 for reason, device_s in rows}
    confirming_s = spent.pop(RunReason.CONFIRM, 0.0)
    return Cost(confirming_s=confirming_s, searching_s=sum(spent.values()))


def _ends_of(session: Session, *, regression_id: int) -> list[tuple[str, str]]:
    """Return the ends, as shas, of every range that was searched and of every step that stands."""
    searched = session.scalars(select(Bisection.commit_shas).where(Bisection.regression_id == regression_id))
    good, bad = aliased(GitCommit), aliased(GitCommit)
    steps = session.execute(
        select(good.sha, bad.sha)
        .select_from(ChangePoint)
        .join(good, good.id == ChangePoint.previous_commit_id)
        .join(bad, bad.id == ChangePoint.commit_id)
        .where(ChangePoint.regression_id == regression_id, ChangePoint.withdrawn_at.is_(None))
    )
    return [*((shas[0], shas[-1]) for shas in searched), *((before, after) for before, after in steps)]
