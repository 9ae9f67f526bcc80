"""Detection: what a new report says about its series, and whether an interleaved re-run agrees.

1. Every series the run touched is read back as points in first-parent order.
2. The newest point may stand apart from the stable segment before it (`stats.suspect`, needs one point), or the tail
   may hold a step (`stats.changepoint`, needs three). Either is only a suspicion: an unconfirmed change point.
3. The two commits of a suspicion are measured again, interleaved, on one machine. Only that can confirm it.
4. Confirmed change points of one commit range become one regression (`group`), which bisection takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus, RunReason
from service.domain.points import Point, to_points
from service.domain.states import Direction
from service.stats import changepoint
from service.stats.paired import PairedEffect, paired_effect
from service.stats.suspect import SuspectRule, suspect
from service.store import points, regressions
from service.store.points import RawMeasurement, TouchedSeries
from service.store.regressions import SeriesChange
from service.store.tables import ChangePoint, GitCommit, Run
from service.usecases.aftermath import Aftermath
from service.usecases.bisect_log import blocks_on, shared_clocks
from service.usecases.dispatch import order_run
from service.usecases.regress import group

HISTORY_REASONS = frozenset({RunReason.PUSH, RunReason.NIGHTLY, RunReason.BACKFILL, RunReason.MANUAL})
CONFIRM_ATTEMPTS = 3
CONFIRM_PRIORITY = 20
MAX_CONTROLS = 2
MIN_SEGMENT = 3


@dataclass(frozen=True, slots=True)
class DetectionPolicy:
    """The relative change below which nothing is suspected or confirmed, and how sure a confirmation must be."""

    min_effect: float = 0.02
    confidence: float = 0.99


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


def after_report(session: Session, *, run_id: int, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Look at what a reported run changes; safe to call again for the same run."""
    run = session.get_one(Run, run_id)
    regressions.lock_repository(session, repository_id=run.repository_id)
    if run.reason == RunReason.CONFIRM:
        return _judge(session, run=run, now=now, policy=policy)
    if run.reason in HISTORY_REASONS:
        return _suspect(session, run=run, now=now, policy=policy)
    return Aftermath()


# -- suspicion ------------------------------------------------------------------------------------------------------


def _suspect(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
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
        history = to_points(figures[series.series_id])
        candidate = find_candidate(
            history, changes[series.series_id], commit_id=run.commit_id, min_effect=policy.min_effect
        )
        if candidate is None:
            continue
        regressions.insert_change_point(session, **_row(series, candidate))
        suspected.setdefault((candidate.good.commit_id, candidate.bad.commit_id), []).append(series)
    aftermath = Aftermath()
    for (good_id, bad_id), group_of_series in suspected.items():
        order = _order_confirmation(session, run=run, good_id=good_id, bad_id=bad_id, series=group_of_series)
        aftermath.add(order)
    _note_verdicts(session, touched=touched, suspected=suspected, now=now)
    return aftermath


def find_candidate(
    history: Sequence[Point], changes: Sequence[SeriesChange], *, commit_id: int, min_effect: float
) -> Candidate | None:
    """Return the step that the point of `commit_id` makes suspicious, within its stable segment, or None.

    Segments end at change points; commits strictly inside a range that is still being bisected belong to neither side.
    """
    here = next((point for point in history if point.commit_id == commit_id), None)
    if here is None:
        return None
    start = max((change.bad_position for change in changes if change.bad_position <= here.position), default=-1)
    end = min((change.good_position for change in changes if change.good_position >= here.position), default=None)
    segment = [point for point in history if point.position >= start and (end is None or point.position <= end)]
    if any(change.good_position < here.position < change.bad_position for change in changes):
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
    detection = changepoint.detect(
        np.array([point.value_s for point in tail]), se=np.array([point.se * point.value_s for point in tail])
    )
    steps = [change for change in detection.changes if abs(change.effect) >= min_effect]
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


def _order_confirmation(
    session: Session, *, run: Run, good_id: int, bad_id: int, series: Sequence[TouchedSeries], attempt: int = 1
) -> Aftermath:
    """Order the two commits interleaved in one run: the suspected workloads, and vendor controls beside them."""
    keys = {item.workload_key for item in series}
    controls = regressions.control_keys(
        session, repository_id=run.repository_id, problems={item.problem for item in series}
    )
    good = session.get_one(GitCommit, good_id)
    bad = session.get_one(GitCommit, bad_id)
    ordered = order_run(
        session,
        repository_id=run.repository_id,
        commit_id=bad.id,
        pool=run.pool,
        reason=RunReason.CONFIRM,
        priority=CONFIRM_PRIORITY,
        dedupe_key=f"confirm:{run.repository_id}:{run.pool}:{good.sha}:{bad.sha}:{attempt}",
        partner_shas=(good.sha,),
        workload_keys=(*sorted(keys), *controls[:MAX_CONTROLS]),
    )
    return Aftermath(runs=[(run.pool, ordered.id)])


def _note_verdicts(
    session: Session,
    *,
    touched: Sequence[TouchedSeries],
    suspected: dict[tuple[int, int], list[TouchedSeries]],
    now: datetime,
) -> None:
    doubtful = {series.series_id for group_of_series in suspected.values() for series in group_of_series}
    for series in touched:
        seen = series.series_id in doubtful
        points.note_verdict(
            session,
            series_id=series.series_id,
            verdict="suspected" if seen else "no_change",
            reason="an interleaved re-run has been ordered" if seen else "within the noise of its stable segment",
            now=now,
        )


# -- confirmation ---------------------------------------------------------------------------------------------------


def _judge(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Confirm, withdraw or re-order the change points that this interleaved run was about."""
    good = session.query(GitCommit).filter_by(repository_id=run.repository_id, sha=run.partner_shas[0]).one()
    waiting = regressions.unconfirmed_between(session, pool=run.pool, good_id=good.id, bad_id=run.commit_id)
    if not waiting:
        return Aftermath()
    raw = points.raw_measurements(session, run_ids=[run.id])
    effects = paired_effects(raw, base_id=good.id, head_id=run.commit_id, confidence=policy.confidence)
    moved_controls = [
        effect for series_id, effect in effects.items() if _is_control(raw, series_id) and effect.excludes_zero
    ]
    confirmed: list[ChangePoint] = []
    unsure: list[ChangePoint] = []
    for change in waiting:
        effect = effects.get(change.series_id)
        if effect is None:
            unsure.append(change)
        elif agrees(change.effect, effect, floor=policy.min_effect):
            if any(same_move(effect, control) for control in moved_controls):
                change.withdrawn_at = now  # the vendor control moved with it: the machine, not the commit
                continue
            _take_over(change, effect)
            change.confirmed_at = now
            confirmed.append(change)
        elif (effect.low > -policy.min_effect and effect.high < policy.min_effect) or effect.effect * change.effect < 0:
            change.withdrawn_at = now
        else:
            unsure.append(change)
    aftermath = Aftermath()
    if confirmed:
        aftermath.add(group(session, run=run, changes=confirmed, good=good, now=now))
    if unsure:
        aftermath.add(_again(session, run=run, good_id=good.id, unsure=unsure, now=now))
    return aftermath


def agrees(suspected: float, measured: PairedEffect, *, floor: float) -> bool:
    """Whether a paired effect proves a suspicion: same sign, certain, and at least the floor."""
    return measured.excludes_zero and measured.effect * suspected > 0 and abs(measured.effect) >= floor


def same_move(effect: PairedEffect, control: PairedEffect) -> bool:
    """Whether a vendor control moved the same way by at least half as much."""
    return effect.effect * control.effect > 0 and abs(control.effect) >= 0.5 * abs(effect.effect)


def paired_effects(
    raw: Sequence[RawMeasurement], *, base_id: int, head_id: int, confidence: float
) -> dict[int, PairedEffect]:
    """Return per series the effect of head over base in one interleaved run, on the stricter clock of the two."""
    clocks = shared_clocks(raw)
    sides: dict[int, dict[int, RawMeasurement]] = {}
    for measurement in raw:
        if measurement.status == MeasurementStatus.OK:
            sides.setdefault(measurement.series_id, {})[measurement.commit_id] = measurement
    effects: dict[int, PairedEffect] = {}
    for series_id, by_commit in sides.items():
        if base_id not in by_commit or head_id not in by_commit:
            continue
        base, head = by_commit[base_id], by_commit[head_id]
        clock = clocks[base.run_id, series_id]
        effect = paired_effect(blocks_on(base, clock), blocks_on(head, clock), confidence=confidence)
        if effect is not None:
            effects[series_id] = effect
    return effects


def _is_control(raw: Sequence[RawMeasurement], series_id: int) -> bool:
    return any(measurement.control for measurement in raw if measurement.series_id == series_id)


def _take_over(change: ChangePoint, effect: PairedEffect) -> None:
    """The paired effect replaces the suspicion's: it was measured on one machine at one time."""
    change.effect, change.effect_low, change.effect_high = effect.effect, effect.low, effect.high
    change.z, change.p_value = effect.z, effect.p_value


def _again(session: Session, *, run: Run, good_id: int, unsure: Sequence[ChangePoint], now: datetime) -> Aftermath:
    """Order one more interleaved run, or give up honestly: what stays unproved is withdrawn, not alarmed."""
    attempt = int(run.dedupe_key.rsplit(":", 1)[1])
    if attempt >= CONFIRM_ATTEMPTS:
        for change in unsure:
            change.withdrawn_at = now
        return Aftermath()
    ids = {change.series_id for change in unsure}
    series = points.series_by_id(session, series_ids=ids)
    return _order_confirmation(
        session, run=run, good_id=good_id, bad_id=run.commit_id, series=series, attempt=attempt + 1
    )
