"""Grouping: confirmed change points of one commit range become one regression.

Called under the repository's lock, so eight detectors at once still make one. A change point joins the open regression
of its direction whose range overlaps its own; else it opens one. Each regression starts one bisection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.severity import severity_of
from service.domain.states import Direction, NotificationEvent, RegressionState, check_regression_move
from service.store import lineage, regressions
from service.store.tables import ChangePoint, GitCommit, Regression, Run
from service.usecases import alert, bisect, life
from service.usecases.aftermath import Aftermath
from service.usecases.rate import set_severity


def group(session: Session, *, run: Run, changes: Sequence[ChangePoint], good: GitCommit, now: datetime) -> Aftermath:
    """Put confirmed change points of (good, run.commit] under a regression per direction, and follow up."""
    bad = session.get_one(GitCommit, run.commit_id)
    aftermath = Aftermath()
    for direction in Direction:
        mine = [change for change in changes if change.direction == direction]
        if mine:
            aftermath.add(_join(session, run=run, changes=mine, good=good, bad=bad, direction=direction, now=now))
    return aftermath


def _join(
    session: Session,
    *,
    run: Run,
    changes: Sequence[ChangePoint],
    good: GitCommit,
    bad: GitCommit,
    direction: Direction,
    now: datetime,
) -> Aftermath:
    if good.position is None or bad.position is None:  # a force push dropped one of them meanwhile
        return Aftermath()
    regression = regressions.overlapping_regression(
        session,
        repository_id=run.repository_id,
        direction=direction,
        good_position=good.position,
        bad_position=bad.position,
    )
    lead = max(changes, key=lambda change: abs(change.z))
    if regression is not None:
        for change in changes:
            change.regression_id = regression.id
        set_severity(session, regression=regression)
        return Aftermath()
    if direction is Direction.REGRESSION:
        returned = life.come_back(session, changes=changes, good=good, bad=bad, now=now)
        if returned is not None:
            aftermath = bisect.start(session, regression=returned, pool=run.pool, evidence=[run], now=now)
            aftermath.deliver = True
            return aftermath
    regression = open_regression(
        session,
        repository_id=run.repository_id,
        direction=direction,
        good_id=good.id,
        bad_id=bad.id,
        lead=lead,
        now=now,
    )
    for change in changes:
        change.regression_id = regression.id
    set_severity(session, regression=regression)
    session.flush()
    aftermath = Aftermath()
    if direction is Direction.IMPROVEMENT:
        aftermath.add(_close_fixed(session, changes=changes, now=now))
    aftermath.add(alert.enqueue(session, regression=regression, event=NotificationEvent.OPENED, now=now))
    aftermath.add(bisect.start(session, regression=regression, pool=run.pool, evidence=[run], now=now))
    return aftermath


def open_regression(
    session: Session,
    *,
    repository_id: int,
    direction: Direction,
    good_id: int,
    bad_id: int,
    lead: ChangePoint,
    now: datetime,
) -> Regression:
    """Insert a confirmed regression of one commit range, with the effect of its clearest series."""
    return regressions.insert_regression(
        session,
        repository_id=repository_id,
        direction=direction,
        state=RegressionState.CONFIRMED,
        good_commit_id=good_id,
        bad_commit_id=bad_id,
        effect=lead.effect,
        effect_low=lead.effect_low,
        effect_high=lead.effect_high,
        severity=severity_of(lead.effect),
        confirmed_at=now,
    )


def _close_fixed(session: Session, *, changes: Sequence[ChangePoint], now: datetime) -> Aftermath:
    """Close the open regressions whose series are all back at the level they had before."""
    aftermath = Aftermath()
    touched: dict[int, Regression] = {}
    by_series = {change.series_id: change for change in changes}
    family = lineage.siblings(session, series_ids=by_series.keys())
    for regression in regressions.open_regressions_of_series(session, series_ids=frozenset().union(*family.values())):
        touched[regression.id] = regression
    for regression in touched.values():
        broken = regressions.changes_in(session, regression_id=regression.id)
        speaker = lineage.stand_ins(session, series_ids={old.series_id for old in broken}, among=by_series)
        back = [(old, by_series[speaker[old.series_id]]) for old in broken if old.series_id in speaker]
        if len(back) == len(broken) and all(is_undone(old, later) for old, later in back):
            check_regression_move(RegressionState(regression.state), RegressionState.FIXED)
            regression.state = RegressionState.FIXED
            regression.closed_at = regression.verified_at = now
            aftermath.add(alert.enqueue(session, regression=regression, event=NotificationEvent.FIXED, now=now))
    return aftermath


def is_undone(step: ChangePoint, later: ChangePoint, *, share: float = 0.2) -> bool:
    """Whether a later step takes back at least four fifths of an earlier one, on the log scale."""
    return math.log1p(step.effect) * math.log1p(later.effect) < 0 and abs(
        math.log1p(step.effect) + math.log1p(later.effect)
    ) <= share * abs(math.log1p(step.effect))
