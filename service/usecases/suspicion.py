"""Suspicion: which steps a new report makes likely enough to measure their two commits again, interleaved.

The newest point may stand apart from the stable segment before it (`stats.suspect`, needs one point), or the segment
may hold a step (`stats.changepoint`, needs three). Either is only an unconfirmed change point: nobody is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import numpy as np
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus
from service.domain.points import Point, to_points
from service.domain.states import Direction
from service.stats import changepoint
from service.stats.suspect import SuspectRule, suspect
from service.stats.verdict import Better, Floors, judge
from service.store import points, regressions
from service.store.points import TouchedSeries
from service.store.regressions import SeriesChange
from service.store.tables import Run
from service.usecases.aftermath import Aftermath
from service.usecases.confirmation import order_confirmation
from service.usecases.policy import DetectionPolicy

MIN_SEGMENT = 3


@dataclass(frozen=True, slots=True)
class Candidate:
    """A suspected step of one series between two measured commits."""

    good: Point
    bad: Point
    before_s: float
    after_s: float
    effect: float
    effect_low: float
    effect_high: float
    z: float
    p_value: float


def look(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Read the series a run touched, note what stands where, and order re-runs for what is suspicious."""
    touched = [
        series
        for series in points.touched_series(session, run=run)
        if series.status == MeasurementStatus.OK and not series.control
    ]
    if not touched:
        return Aftermath()
    ids = [series.series_id for series in touched]
    figures = points.figures_of(session, series_ids=ids)
    changes = regressions.changes_of(session, series_ids=ids)
    suspected: dict[tuple[int, int], list[TouchedSeries]] = {}
    for series in touched:
        segment = stable_segment(
            to_points(figures[series.series_id]), changes[series.series_id], commit_id=run.commit_id
        )
        own = policy.of(series.workload_key)
        candidate = find_candidate(segment, commit_id=run.commit_id, min_effect=own.min_effect)
        if candidate is not None:
            regressions.insert_change_point(session, **_row(series, candidate))
            suspected.setdefault((candidate.good.commit_id, candidate.bad.commit_id), []).append(series)
        _note(session, series=series, segment=segment, candidate=candidate, policy=own, now=now)
    aftermath = Aftermath()
    for (good_id, bad_id), members in suspected.items():
        aftermath.add(order_confirmation(session, run=run, good_id=good_id, bad_id=bad_id, series=members))
    return aftermath


def stable_segment(history: Sequence[Point], changes: Sequence[SeriesChange], *, commit_id: int) -> Sequence[Point]:
    """Return the points that the point of `commit_id` may be compared with, itself included; empty if there is none.

    Segments end at change points. A commit strictly inside a range still being searched belongs to neither side.
    """
    here = next((point for point in history if point.commit_id == commit_id), None)
    if here is None or any(change.good_position < here.position < change.bad_position for change in changes):
        return ()
    start = max((change.bad_position for change in changes if change.bad_position <= here.position), default=-1)
    end = min((change.good_position for change in changes if change.good_position >= here.position), default=None)
    return [point for point in history if point.position >= start and (end is None or point.position <= end)]


def find_candidate(segment: Sequence[Point], *, commit_id: int, min_effect: float) -> Candidate | None:
    """Return the step that the point of `commit_id` makes suspicious within its stable segment, or None."""
    here = next((point for point in segment if point.commit_id == commit_id), None)
    if here is None:
        return None
    return _newest_apart(segment, here, min_effect=min_effect) or _step_in(segment, min_effect=min_effect)


def _newest_apart(segment: Sequence[Point], here: Point, *, min_effect: float) -> Candidate | None:
    before = [point for point in segment if point.position < here.position]
    if not before:
        return None
    found = suspect(
        [point.value_s for point in before],
        here.value_s,
        se=float(np.hypot(here.se, before[-1].se)),
        rule=SuspectRule(min_effect=min_effect),
    )
    if found is None:
        return None
    return Candidate(
        good=before[-1],
        bad=here,
        before_s=found.before,
        after_s=found.after,
        effect=found.effect,
        effect_low=float(np.expm1(np.log1p(found.effect) - 2 * found.sd)),
        effect_high=float(np.expm1(np.log1p(found.effect) + 2 * found.sd)),
        z=found.z,
        p_value=0.0,
    )


def _step_in(segment: Sequence[Point], *, min_effect: float) -> Candidate | None:
    tail = segment[-points.TAIL :]
    if len(tail) < 2 * MIN_SEGMENT:
        return None
    steps = [change for change in _detect(tail).changes if abs(change.effect) >= min_effect]
    if not steps:
        return None
    step = steps[-1]
    return Candidate(
        good=tail[step.index - 1],
        bad=tail[step.index],
        before_s=step.before,
        after_s=step.after,
        effect=step.effect,
        effect_low=step.effect_low,
        effect_high=step.effect_high,
        z=step.z,
        p_value=step.p_value,
    )


def _row(series: TouchedSeries, candidate: Candidate) -> dict[str, object]:
    return {
        "series_id": series.series_id,
        "commit_id": candidate.bad.commit_id,
        "previous_commit_id": candidate.good.commit_id,
        "direction": direction_of(candidate.effect, better=series.direction),
        "detector": changepoint.DETECTOR,
        "detector_version": changepoint.DETECTOR_VERSION,
        "before_s": candidate.before_s,
        "after_s": candidate.after_s,
        "effect": candidate.effect,
        "effect_low": candidate.effect_low,
        "effect_high": candidate.effect_high,
        "z": candidate.z,
        "p_value": candidate.p_value,
    }


def direction_of(effect: float, *, better: str) -> Direction:
    """Say whether a relative change is worse or better, given which direction of the metric is better."""
    worse = effect > 0 if better == "lower" else effect < 0
    return Direction.REGRESSION if worse else Direction.IMPROVEMENT


def _note(
    session: Session,
    *,
    series: TouchedSeries,
    segment: Sequence[Point],
    candidate: Candidate | None,
    policy: DetectionPolicy,
    now: datetime,
) -> None:
    """Keep the last word on a series: its verdict, its noise floor, and the smallest step it would show."""
    if candidate is not None:
        verdict, reason = "suspected", "an interleaved re-run of the two commits has been ordered"
    elif len(segment) < MIN_SEGMENT:
        verdict, reason = "cannot_tell", f"{len(segment)} of {MIN_SEGMENT} points of a baseline"
    else:
        judgement = judge(
            _detect(segment), better=Better(series.direction), floors=Floors(min_effect=policy.min_effect)
        )
        verdict, reason = str(judgement.verdict), judgement.reason
    facts: dict[str, object] = {"points": len(segment)}
    if len(segment) >= MIN_SEGMENT:
        found = _detect(segment)
        facts |= {
            "noise": found.noise_floor,
            "detectable": found.smallest_detectable,
            "floor": policy.min_effect,
            "autocorrelation": found.autocorrelation,
            "bimodal": None if found.bimodal is None else asdict(found.bimodal),
            "drift": None if found.drift is None else asdict(found.drift),
            "detector": f"{changepoint.DETECTOR}/{changepoint.DETECTOR_VERSION}",
        }
    points.note_verdict(session, series_id=series.series_id, verdict=verdict, reason=reason, detection=facts, now=now)


def _detect(segment: Sequence[Point]) -> changepoint.Detection:
    tail = segment[-points.TAIL :]
    return changepoint.detect(
        np.array([point.value_s for point in tail]), se=np.array([point.se * point.value_s for point in tail])
    )
