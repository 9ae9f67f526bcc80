"""The life of a regression after it was told: fixes are verified, accepted ones expire, and some come back.

- Somebody says "fixed": the newest measured commit is measured against the last good one, interleaved. Only then people
  hear that it is fixed; if the step is still there, the regression opens again by itself. Both commits are measured in
  the environment of today, so the baseline outlives the environment that it was found in; where no series holds both
  (another benchmark version) the note says that it cannot be told.
- "Expected" ends at its date: the regression is open again.
- A step that returns to a series after a fix re-opens the regression it repeats, in its old thread; it is searched
  anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.contract import RunReason
from service.domain.states import NotificationEvent, RegressionState, check_regression_move
from service.stats.paired import PairedEffect
from service.store import audit, bisections, lineage, lives, points, regressions
from service.store.tables import ChangePoint, GitCommit, Regression, Run, Series
from service.store.watch import RETRACTED
from service.usecases import alert
from service.usecases.aftermath import Aftermath
from service.usecases.dispatch import order_run
from service.usecases.effects import agrees, paired_effects
from service.usecases.policy import DetectionPolicy

VERIFY_PRIORITY = 15
VERIFY_PROCESSES = 6
SAME_STEP = 0.5  # a step of at least half the old one, in the same direction, is the old one come back
SYSTEM = "kernelwatch"


def verify_fix(session: Session, *, regression: Regression) -> Aftermath:
    """Order the newest measured commit against the last good one, on the workloads that had moved."""
    changes = regressions.changes_in(session, regression_id=regression.id)
    if not changes:
        return Aftermath()
    lead = session.get_one(Series, changes[0].series_id)
    newest = lives.newest_measured(session, series_ids=lineage.kin_of(session, series_id=lead.id))
    good = session.get_one(GitCommit, regression.good_commit_id)
    if newest is None or newest.id == good.id:
        return Aftermath()
    keys = regressions.workload_keys(session, series_ids=[change.series_id for change in changes])
    run = order_run(
        session,
        repository_id=regression.repository_id,
        commit_id=newest.id,
        pool=lead.pool,
        reason=RunReason.VERIFY,
        priority=VERIFY_PRIORITY,
        dedupe_key=f"verify:{regression.id}:{regression.life}:{newest.sha}",
        partner_shas=(good.sha,),
        workload_keys=sorted(set(keys.values())),
        protocol={"processes": VERIFY_PROCESSES},
    )
    return Aftermath(runs=[(lead.pool, run.id)])


def after_report(session: Session, *, run_id: int, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Judge the fix that a run was ordered to verify; nothing for any other run."""
    run = session.get_one(Run, run_id)
    if run.reason != RunReason.VERIFY:
        return Aftermath()
    regression = session.get_one(Regression, int(run.dedupe_key.split(":")[1]), with_for_update=True)
    if regression.state != RegressionState.FIXED or regression.verified_at is not None:
        return Aftermath()
    good = session.scalars(select(GitCommit).filter_by(repository_id=run.repository_id, sha=run.partner_shas[0])).one()
    raw = points.raw_measurements(session, run_ids=[run.id])
    effects = paired_effects(raw, base_id=good.id, head_id=run.commit_id, confidence=policy.confidence)
    changes = regressions.changes_in(session, regression_id=regression.id)
    speaker = lineage.stand_ins(session, series_ids={change.series_id for change in changes}, among=effects)
    seen = [(change, effects[speaker[change.series_id]]) for change in changes if change.series_id in speaker]
    still = [effect for change, effect in seen if is_still_there(change, effect, policy=policy)]
    if still:
        worst = max((effect.effect for effect in still), key=abs)
        why = f"called fixed, but the newest commit is still at {worst:+.1%} against the last good one"
        return reopen(session, regression=regression, why=why, now=now)
    if len(seen) < len(changes):
        regression.note = (
            f"called fixed; cannot tell: {len(changes) - len(seen)} of {len(changes)} series have no figure of both "
            f"{good.sha[:12]} and the newest commit in one environment and version"
        )
        return Aftermath()
    regression.verified_at = now
    return alert.enqueue(session, regression=regression, event=NotificationEvent.FIXED, now=now)


def leave_unproved(session: Session, *, run: Run) -> Aftermath:
    """Note that a fix waits for its proof: the runner that measured it has lost its trust meanwhile."""
    regression = session.get_one(Regression, int(run.dedupe_key.split(":")[1]), with_for_update=True)
    if regression.state == RegressionState.FIXED and regression.verified_at is None:
        regression.note = "called fixed; its proof was measured by a runner that has lost its trust"
    return Aftermath()


def is_still_there(change: ChangePoint, effect: PairedEffect, *, policy: DetectionPolicy) -> bool:
    """Whether an interleaved effect against the good end shows at least half of the old step."""
    if not agrees(change.effect, effect, floor=policy.min_effect):
        return False
    return abs(math.log1p(effect.effect)) >= SAME_STEP * abs(math.log1p(change.effect))


def reopen(session: Session, *, regression: Regression, why: str, now: datetime) -> Aftermath:
    """Open a closed regression again, in its old thread."""
    before = RegressionState(regression.state)
    check_regression_move(before, RegressionState.CONFIRMED)
    regression.state = RegressionState.ATTRIBUTED if regression.culprit_commit_id else RegressionState.CONFIRMED
    regression.life += 1
    regression.closed_at = regression.verified_at = regression.expires_at = None
    regression.confirmed_at = now
    regression.note = why
    audit.record(
        session,
        actor=SYSTEM,
        action="regression.reopened",
        subject=("regression", regression.id),
        before={"state": before.value},
        after={"state": str(regression.state), "note": why},
    )
    session.flush()
    return alert.enqueue(session, regression=regression, event=NotificationEvent.REOPENED, now=now)


def expire(session: Session, *, now: datetime) -> Aftermath:
    """Open the regressions whose acceptance has run out."""
    aftermath = Aftermath()
    for regression in lives.expired(session, now=now):
        owner = f" by {regression.assignee}" if regression.assignee else ""
        why = f"the acceptance{owner} has expired: {regression.note or 'no reason was kept'}"
        aftermath.add(reopen(session, regression=regression, why=why, now=now))
    return aftermath


def come_back(
    session: Session, *, changes: Sequence[ChangePoint], good: GitCommit, bad: GitCommit, now: datetime
) -> Regression | None:
    """Re-open the fixed regression that these new change points repeat, on their new range; None if there is none."""
    by_series = {change.series_id: change for change in changes}
    family = lineage.siblings(session, series_ids=by_series.keys())
    for regression in lives.closed_with_series(session, series_ids=frozenset().union(*family.values())):
        old = regressions.changes_in(session, regression_id=regression.id)
        speaker = lineage.stand_ins(session, series_ids={change.series_id for change in old}, among=by_series)
        mine = [(change, by_series[speaker[change.series_id]]) for change in old if change.series_id in speaker]
        if mine and all(repeats(first.effect, again.effect) for first, again in mine):
            reopen(session, regression=regression, why="the step that was fixed has come back", now=now)
            regression.good_commit_id, regression.bad_commit_id = good.id, bad.id
            regression.culprit_commit_id = None
            regression.state = RegressionState.CONFIRMED
            regression.part = lives.next_part(session, regression=regression)
            for change in changes:
                change.regression_id = regression.id
            session.flush()
            return regression
    return None


def repeats(first: float, again: float) -> bool:
    """Whether a step has the sign of an earlier one and at least half and at most twice its size (logs)."""
    if first * again <= 0:
        return False
    return SAME_STEP <= math.log1p(again) / math.log1p(first) <= 1 / SAME_STEP


def retract(session: Session, *, run_id: int, reason: str, actor: str, now: datetime) -> Aftermath:
    """Take a run's measurements out of every series; what rested on them alone is taken back.

    Nothing is deleted: the samples stay readable, marked. Raises ValueError without a reason.
    """
    if not reason.strip():
        raise ValueError("retracting a run needs a reason")
    run = session.get_one(Run, run_id, with_for_update=True)
    if run.retracted_at is not None:
        return Aftermath()
    regressions.lock_repository(session, repository_id=run.repository_id)
    run.retracted_at, run.retracted_reason = now, reason
    session.flush()
    aftermath = Aftermath()
    touched: set[int] = set()
    for change in lives.changes_resting_on(session, run=run):
        ends = (change.commit_id, change.previous_commit_id)
        if all(lives.has_figures(session, series_id=change.series_id, commit_id=end) for end in ends):
            continue
        change.withdrawn_at, change.withdrawn_reason = now, RETRACTED.format(run_id=run.id, reason=reason)
        change.restarts_baseline = False
        if change.regression_id is not None:
            touched.add(change.regression_id)
    session.flush()
    for regression_id in sorted(touched):
        if not any(c.withdrawn_at is None for c in regressions.changes_in(session, regression_id=regression_id)):
            aftermath.add(_take_back(session, regression_id=regression_id, why=f"run {run.id} was retracted", now=now))
    audit.record(session, actor=actor, action="run.retracted", subject=("run", run.id), after={"reason": reason})
    return aftermath


def _take_back(session: Session, *, regression_id: int, why: str, now: datetime) -> Aftermath:
    regression = session.get_one(Regression, regression_id, with_for_update=True)
    if RegressionState(regression.state) in {RegressionState.NOT_REAL, RegressionState.FIXED}:
        return Aftermath()
    regression.state = RegressionState.NOT_REAL
    regression.closed_at, regression.note = now, why
    for bisection_id in bisections.running_of(session, regression_id=regression_id):
        bisections.cancel(session, bisection_id=bisection_id, now=now)
    return alert.enqueue(session, regression=regression, event=NotificationEvent.WITHDRAWN, now=now)
