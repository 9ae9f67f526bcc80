"""Suspicion: which steps a new report makes likely enough to measure their two commits again, interleaved.

One look covers a batch of series:

1. Each series is examined (`examine`): steps of its stable segments that nobody has settled yet.
2. The candidates of the batch must be discoveries (Benjamini and Hochberg) among all series that the pool watches.
3. Where more than 30 % of the watched families moved at one commit, the vendor's library moved, or the step came with
   another host, driver or clock, the verdict is "environment": the baseline restarts and nobody is told. An interleaved
   run is ordered all the same; only its proof that the commit itself made the step can make it an alert.
4. Every other suspicion is an unconfirmed change point, which only an interleaved run can confirm: nobody is told.
5. What stands where is noted on each series (`noting`), also on those that the newest run no longer brought.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.orm import Session

from service.contract import MeasurementStatus
from service.domain.points import POINT_REASONS, Point, to_points
from service.domain.roofline import least_believable_s
from service.domain.states import Direction
from service.stats import changepoint
from service.stats.grouping import discoveries
from service.stats.verdict import Better, Control, Floors, Surroundings, environment_reason
from service.store import bridges, points, regressions, watch
from service.store.points import TouchedSeries
from service.store.regressions import SeriesChange
from service.store.tables import Environment, Run
from service.usecases import examine, noting
from service.usecases.aftermath import Aftermath
from service.usecases.confirmation import order_confirmation
from service.usecases.examine import Candidate
from service.usecases.policy import DetectionPolicy

SUSPICION_RATE = 0.1
"""False-discovery rate among suspicions: one re-run in ten may be for nothing. It costs device time, not an alert."""


@dataclass(slots=True)
class Examined:
    """One series of a batch: its points and what they say."""

    series: TouchedSeries
    policy: DetectionPolicy
    history: Sequence[Point]
    changes: Sequence[SeriesChange]
    settled: dict[watch.Pair, str]
    inherited: Sequence[SeriesChange] = ()
    fresh: list[Candidate] = field(default_factory=list)
    lasting: list[Candidate] = field(default_factory=list)
    odd: list[Candidate] = field(default_factory=list)
    implausible: str | None = None


def look(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Read the series that a run touched, order re-runs for what is suspicious, and note what stands where."""
    touched = [s for s in points.touched_series(session, run=run) if s.status == MeasurementStatus.OK]
    aftermath = look_at(session, run=run, series=touched, now=now, policy=policy)
    noting.note_endings(session, run=run, now=now)
    return aftermath


def look_at(
    session: Session, *, run: Run, series: Sequence[TouchedSeries], now: datetime, policy: DetectionPolicy
) -> Aftermath:
    """Examine some series after a run (a report, a settled suspicion, a retraction); doing it twice changes nothing."""
    batch = _examine(session, run=run, series=series, policy=policy)
    kernels = [item for item in batch if not item.series.control]
    controls = [item for item in batch if item.series.control]
    watched = watch.families_watched(session, repository_id=run.repository_id, pool=run.pool)
    accepted = _discovered(kernels, tests=sum(watched.values()))
    moved = examine.families_moved([(item.series.family, found) for item, found in accepted], watched=watched)
    suspected: dict[watch.Pair, list[TouchedSeries]] = {}
    for item, found in accepted:
        around = Surroundings(
            controls=_moved_controls(item.series, found, controls),
            families_moved=moved(found),
            follows=_follows(session, found),
        )
        why = environment_reason(around, found.effect, Floors(min_effect=item.policy.min_effect))
        regressions.insert_change_point(session, **_row(item.series, found), restarts_baseline=why is not None)
        suspected.setdefault(found.pair, []).append(item.series)
    _restart(session, kernels)
    aftermath = Aftermath()
    for (good_id, bad_id), members in suspected.items():
        aftermath.add(
            order_confirmation(
                session,
                repository_id=run.repository_id,
                pool=run.pool,
                good_id=good_id,
                bad_id=bad_id,
                series=members,
            )
        )
    _note(session, kernels, now=now)
    return aftermath


def _examine(session: Session, *, run: Run, series: Sequence[TouchedSeries], policy: DetectionPolicy) -> list[Examined]:
    ids = [item.series_id for item in series]
    if not ids:
        return []
    figures = points.figures_of(session, series_ids=ids, reasons=POINT_REASONS)
    changes = regressions.changes_of(session, series_ids=ids)
    inherited = bridges.inherited(session, series_ids=ids)
    settled = watch.settled_pairs(session, series_ids=ids)
    environment = None if run.environment_id is None else session.get_one(Environment, run.environment_id)
    batch = []
    for item in series:
        heritage = inherited.get(item.series_id, bridges.Inheritance())
        known = sorted([*heritage.changes, *changes[item.series_id]], key=lambda entry: entry.bad_position)
        least_s = None
        if environment is not None and item.unit == "s":
            least_s = least_believable_s(environment.device, flops=item.flops, size_bytes=item.bytes)
        every = to_points(figures[item.series_id])
        history = [point for point in every if least_s is None or point.value_s >= least_s]
        mine = Examined(
            item, policy.of(item.workload_key), history, known, settled[item.series_id], inherited=heritage.changes
        )
        if every and every[-1] not in history[-1:]:
            mine.implausible = f"{every[-1].value_s:.3g} s is less than the device needs at best ({least_s:.3g} s)"
        near = examine.window(history, commit_id=run.commit_id, size=changepoint.TAIL_POINTS)
        found = [
            candidate
            for segment in examine.stable_segments(near, known)
            for candidate in examine.candidates(
                examine.without_odd(segment, mine.settled),
                commit_id=run.commit_id,
                better=Better(item.direction),
                min_effect=mine.policy.min_effect,
            )
        ]
        found = [candidate for candidate in found if candidate.bad.commit_id not in heritage.commit_ids]
        mine.fresh, mine.lasting, mine.odd = examine.split_settled(found, mine.settled)
        batch.append(mine)
    return batch


def _discovered(kernels: Sequence[Examined], *, tests: int) -> list[tuple[Examined, Candidate]]:
    """Return the fresh candidates that are discoveries, and take the others off their series."""
    every = [(item, candidate) for item in kernels for candidate in item.fresh]
    kept = discoveries([candidate.p_value for _, candidate in every], tests=tests, rate=SUSPICION_RATE)
    accepted = [pair for pair, keep in zip(every, kept, strict=True) if keep]
    for item in kernels:
        item.fresh = [candidate for owner, candidate in accepted if owner is item]
    return accepted


def _moved_controls(series: TouchedSeries, found: Candidate, controls: Sequence[Examined]) -> tuple[Control, ...]:
    """Return the vendor controls of the same problem with a step at the same commit."""
    return tuple(
        Control(
            name=item.series.workload_key,
            effect=step.effect,
            se=(math.log1p(step.effect_high) - math.log1p(step.effect_low)) / (2 * examine.Z95),
        )
        for item in controls
        if item.series.problem == series.problem
        for step in (*item.fresh, *item.lasting)
        if step.bad.commit_id == found.bad.commit_id
    )


def _follows(session: Session, found: Candidate) -> tuple[str, ...]:
    """Name what of the machine changed for good where the level changed, or nothing."""
    before, after = found.environments()
    if not before or not after or before & after:
        return ()
    return watch.differing_facts(session, before=before, after=after)


def _restart(session: Session, kernels: Sequence[Examined]) -> None:
    """Restart the baselines at steps that last although an interleaved run found their two commits equal."""
    for item in kernels:
        for found in item.lasting:
            good_id, bad_id = found.pair
            regressions.restart_baseline(
                session, series_id=item.series.series_id, previous_commit_id=good_id, commit_id=bad_id
            )


def _note(session: Session, kernels: Sequence[Examined], *, now: datetime) -> None:
    ids = [item.series.series_id for item in kernels]
    changes = regressions.changes_of(session, series_ids=ids)
    boundaries = bridges.boundaries(session, series_ids=ids)
    for item in kernels:
        series_id = item.series.series_id
        standing = sorted([*item.inherited, *changes[series_id]], key=lambda entry: entry.bad_position)
        segments = examine.stable_segments(item.history[-changepoint.TAIL_POINTS :], standing)
        noting.note(
            session,
            series=item.series,
            standing=noting.Standing(
                segment=examine.without_odd(segments[-1], item.settled) if segments else (),
                newest=item.history[-1] if item.history else None,
                changes=standing,
                settled=item.settled,
                odd=item.odd,
                boundary=boundaries.get(series_id),
                implausible=item.implausible,
                points=len(item.history),
            ),
            policy=item.policy,
            now=now,
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
