"""Detection: what a new report says about its series.

1. `suspicion`: a report of the history (push, nightly, backfill) may make a step of its series suspicious; a bridge
   gives a new series the baseline for that.
2. `confirmation`: the two commits of a suspicion are measured again, interleaved; only that can confirm it.
3. `life`: a run that was ordered to prove a fix proves it, or opens the regression again.
4. `aa`: a commit against itself says how often the verdict alarms at nothing.
5. `regress`: confirmed change points of one commit range become one regression, which `bisect` takes over.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.contract import RunReason
from service.domain.points import POINT_REASONS
from service.store import points, regressions
from service.store.tables import Repository, Run
from service.usecases import aa, confirmation, life, standing, suspicion
from service.usecases.aftermath import Aftermath
from service.usecases.policy import DetectionPolicy, with_overrides


def after_report(session: Session, *, run_id: int, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Look at what a finished run changes; safe to call again for the same run."""
    run = session.get_one(Run, run_id)
    regressions.lock_repository(session, repository_id=run.repository_id)
    policy = with_overrides(policy, session.get_one(Repository, run.repository_id).settings)
    if run.reason == RunReason.CONFIRM:
        aftermath = confirmation.judge_run(session, run=run, now=now, policy=policy)
        session.flush()
        aftermath.add(_look_again(session, run=run, now=now, policy=policy))
        return aftermath
    if run.reason == RunReason.VERIFY:
        if not standing.may_judge(session, run=run):
            return life.leave_unproved(session, run=run)
        return life.after_report(session, run_id=run_id, now=now, policy=policy)
    if run.reason == RunReason.AA:
        return aa.judge_run(session, run=run, now=now, policy=policy)
    if run.reason in POINT_REASONS:
        return suspicion.look(session, run=run, now=now, policy=policy)
    return Aftermath()


def retract(
    session: Session, *, run_id: int, reason: str, actor: str, now: datetime, policy: DetectionPolicy
) -> Aftermath:
    """Take a run out (`life.retract`), and look again at the series it had measured."""
    aftermath = life.retract(session, run_id=run_id, reason=reason, actor=actor, now=now)
    run = session.get_one(Run, run_id)
    policy = with_overrides(policy, session.get_one(Repository, run.repository_id).settings)
    session.flush()
    aftermath.add(_look_again(session, run=run, now=now, policy=policy))
    return aftermath


def _look_again(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Examine the series of a run once more: what it settled may lay open another step, or none."""
    series = points.touched_series(session, run=run)
    return suspicion.look_at(session, run=run, series=series, now=now, policy=policy)
