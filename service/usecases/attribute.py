"""Attribution: what the outcome of a bisection means for the regression and the change points in it.

A range may hold more than one culprit. The probes measure several workloads, so each change point of the regression is
asked whether its own measurements agree with the named commit; those that point elsewhere leave for a regression of
their own, which is bisected in turn with the measurements that exist already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.severity import severity_of
from service.domain.states import BisectionVerdict, Direction, NotificationEvent, RegressionState
from service.stats import bisect as engine
from service.store import bisections, regressions
from service.store.tables import Bisection, ChangePoint, Regression
from service.usecases import alert
from service.usecases.aftermath import Aftermath
from service.usecases.bisect_log import BisectionLog
from service.usecases.rate import set_severity

ELSEWHERE = 0.05  # a change point whose own belief in the named commit is below this points elsewhere
NAMED = (BisectionVerdict.CULPRIT, BisectionVerdict.CULPRITS)


def conclude(
    session: Session,
    *,
    bisection: Bisection,
    regression: Regression,
    outcome: engine.Outcome,
    log: BisectionLog,
    better: str,
    now: datetime,
) -> Aftermath:
    """Write the outcome into the regression: named, narrowed to a range, taken back, or left open."""
    verdict = BisectionVerdict(outcome.verdict)
    if verdict in NAMED:
        return _name(
            session, bisection=bisection, regression=regression, outcome=outcome, log=log, better=better, now=now
        )
    if verdict is BisectionVerdict.RANGE:
        regression.note = outcome.reason
        return alert.enqueue(session, regression=regression, event=NotificationEvent.ATTRIBUTED, now=now)
    if verdict is BisectionVerdict.NO_CHANGE:
        regression.state = RegressionState.NOT_REAL
        regression.closed_at = now
        regression.note = outcome.reason
        for change in regressions.changes_in(session, regression_id=regression.id):
            change.withdrawn_at = now
        aftermath = alert.enqueue(session, regression=regression, event=NotificationEvent.WITHDRAWN, now=now)
        if outcome.reason_code is engine.Reason.ENVIRONMENT:
            aftermath.add(alert.enqueue(session, regression=regression, event=NotificationEvent.ENVIRONMENT, now=now))
        return aftermath
    regression.note = outcome.reason
    return Aftermath()


def _name(
    session: Session,
    *,
    bisection: Bisection,
    regression: Regression,
    outcome: engine.Outcome,
    log: BisectionLog,
    better: str,
    now: datetime,
) -> Aftermath:
    ids = bisections.commit_ids(session, repository_id=regression.repository_id, shas=bisection.commit_shas)
    commit_at = [ids[sha] for sha in bisection.commit_shas]
    position = outcome.positions[0]
    changes = regressions.changes_in(session, regression_id=regression.id)
    elsewhere = [
        change
        for change in changes
        if change.series_id != bisection.series_id and points_elsewhere(change, bisection, log, position=position)
    ]
    here = [change for change in changes if change not in elsewhere]
    parent_id, culprit_id = commit_at[position - 1], commit_at[position]
    aftermath = _narrow(session, regression=regression, changes=here, good_id=parent_id, bad_id=culprit_id, now=now)
    for direction in Direction:
        leaving = [change for change in elsewhere if change.direction == direction]
        if leaving:
            ends = (commit_at[0], commit_at[-1])
            aftermath.add(_split(session, bisection=bisection, changes=leaving, ends=ends, now=now))
    for blame in outcome.blames:
        if position not in blame.positions and len(blame.positions) == 1:
            aftermath.add(
                _open_second(session, bisection=bisection, blame=blame, commit_at=commit_at, better=better, now=now)
            )
    return aftermath


def _narrow(
    session: Session,
    *,
    regression: Regression,
    changes: Sequence[ChangePoint],
    good_id: int,
    bad_id: int,
    now: datetime,
) -> Aftermath:
    """Put a regression and its change points on the named commit; if that commit has one already, join it."""
    twin = regressions.regression_of_range(
        session,
        repository_id=regression.repository_id,
        direction=regression.direction,
        good_id=good_id,
        bad_id=bad_id,
    )
    home = twin if twin is not None and twin.id != regression.id else regression
    regressions.move_change_points(
        session,
        change_ids=[change.id for change in changes],
        commit_id=bad_id,
        previous_commit_id=good_id,
        regression_id=home.id,
    )
    if home is not regression:
        regression.state = RegressionState.NOT_REAL
        regression.closed_at = now
        regression.note = f"the same commit as regression {home.id}, which it has joined"
        return alert.enqueue(session, regression=regression, event=NotificationEvent.WITHDRAWN, now=now)
    regression.good_commit_id = good_id
    regression.bad_commit_id = regression.culprit_commit_id = bad_id
    regression.attributed_at = now
    if regression.state in {RegressionState.DETECTED, RegressionState.CONFIRMED}:
        regression.state = RegressionState.ATTRIBUTED
    session.flush()
    return alert.enqueue(session, regression=regression, event=NotificationEvent.ATTRIBUTED, now=now)


def points_elsewhere(change: ChangePoint, bisection: Bisection, log: BisectionLog, *, position: int) -> bool:
    """Whether a change point's own measurements contradict the named commit."""
    belief = series_belief(change, bisection, log)
    return belief is not None and belief.commits[position - 1] < ELSEWHERE


def series_belief(change: ChangePoint, bisection: Bisection, log: BisectionLog) -> engine.Posterior | None:
    """Return where a change point's own series places the step; None if the probes did not measure it."""
    entries = log.entries(change.series_id)
    probed = {entry.position for entry in entries if isinstance(entry, engine.Observation)}
    if len(probed) < 3:  # only the ends: nothing that could contradict
        return None
    same = bisection.problem["same_as_parent"]
    problem = engine.BisectProblem(
        candidates=tuple(
            engine.Candidate(position=k, sha=sha, same_as_parent=same[k - 1] or log.same_as_parent(change.series_id, k))
            for k, sha in enumerate(bisection.commit_shas)
            if k > 0
        ),
        alarm_effect=math.log1p(change.effect),
        alarm_effect_se=max(abs(math.log1p(change.effect)) * 0.1, 0.002),
        noise_sd=log.noise_sd(change.series_id),
        environment_changed=False,
        budget_s=bisection.budget_s,
        measure_cost_s=log.measure_cost_s,
    )
    return engine.posterior(problem, entries)


def _split(
    session: Session, *, bisection: Bisection, changes: Sequence[ChangePoint], ends: tuple[int, int], now: datetime
) -> Aftermath:
    """Open a regression for change points that another commit of the range must have caused, and search for it."""
    from service.usecases import bisect  # the two follow each other: a split starts a search

    lead = changes[0]
    other = regressions.insert_regression(
        session,
        **_found(session, bisection=bisection, direction=lead.direction, now=now),
        state=RegressionState.CONFIRMED,
        good_commit_id=ends[0],
        bad_commit_id=ends[1],
        effect=lead.effect,
        effect_low=lead.effect_low,
        effect_high=lead.effect_high,
        severity=severity_of(lead.effect),
    )
    for change in changes:
        change.regression_id = other.id
    set_severity(session, regression=other)
    session.flush()
    aftermath = alert.enqueue(session, regression=other, event=NotificationEvent.OPENED, now=now)
    evidence = [item.run for item in bisections.probes_of(session, bisection_id=bisection.id)]
    aftermath.add(bisect.start(session, regression=other, pool=bisection.pool, evidence=evidence, now=now))
    return aftermath


def _found(session: Session, *, bisection: Bisection, direction: str, now: datetime) -> dict[str, object]:
    parent = session.get_one(Regression, bisection.regression_id)
    return {"repository_id": parent.repository_id, "direction": direction, "confirmed_at": now}


def _open_second(
    session: Session,
    *,
    bisection: Bisection,
    blame: engine.Blame,
    commit_at: Sequence[int],
    better: str,
    now: datetime,
) -> Aftermath:
    """Record a second step of the same series that the search found on its way."""
    position = blame.positions[0]
    effect = math.expm1(blame.effect)
    worse = effect > 0 if better == "lower" else effect < 0
    direction = Direction.REGRESSION if worse else Direction.IMPROVEMENT
    size = {
        "effect": effect,
        "effect_low": math.expm1(blame.effect_low),
        "effect_high": math.expm1(blame.effect_high),
    }
    other = regressions.insert_regression(
        session,
        **_found(session, bisection=bisection, direction=direction, now=now),
        **size,
        state=RegressionState.ATTRIBUTED,
        good_commit_id=commit_at[position - 1],
        bad_commit_id=commit_at[position],
        culprit_commit_id=commit_at[position],
        severity=severity_of(effect),
        attributed_at=now,
    )
    before_s = bisection.problem["before_s"]
    regressions.insert_change_point(
        session,
        **size,
        series_id=bisection.series_id,
        commit_id=commit_at[position],
        previous_commit_id=commit_at[position - 1],
        regression_id=other.id,
        direction=direction,
        detector="kw-bisect",
        detector_version=1,
        before_s=before_s,
        after_s=before_s * (1 + effect),
        z=blame.effect / max((blame.effect_high - blame.effect_low) / 4, 1e-6),
        p_value=1 - blame.probability,
        confirmed_at=now,
    )
    set_severity(session, regression=other)
    aftermath = alert.enqueue(session, regression=other, event=NotificationEvent.OPENED, now=now)
    aftermath.add(alert.enqueue(session, regression=other, event=NotificationEvent.ATTRIBUTED, now=now))
    return aftermath
