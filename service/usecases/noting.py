"""The last word on a series: verdict, reason, and the figures of its noise, kept where the dashboard reads them.

The word is a function of the points and of what is on record, in this order: a figure that cannot be true; a step that
waits for its re-run; an open regression, judged against the level before it however long it lasts; a baseline that has
only begun; an odd point that was settled; and then what the detector says of the stable segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.bridges import Boundary, BoundaryKind
from service.domain.points import Point
from service.domain.states import OPEN_REGRESSION_STATES, Direction
from service.stats import changepoint
from service.stats.changepoint import Detection
from service.stats.verdict import Better, Floors, Verdict, judge
from service.store import points, watch
from service.store.points import TouchedSeries
from service.store.regressions import SeriesChange
from service.store.tables import Run
from service.usecases.confirmation import UNPROVED
from service.usecases.examine import MIN_SEGMENT, Candidate, detect
from service.usecases.policy import DetectionPolicy

SUSPECTED = "suspected"
PRIOR_POINTS, PRIOR_RATE = 250, 0.0008
"""A series begins with the rate of the detector's simulated histories, worth this many points of its own."""

Word = tuple[str, str]  # verdict, reason


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a series stands: its newest stable segment, and what is on record."""

    segment: Sequence[Point]
    newest: Point | None
    changes: Sequence[SeriesChange]
    settled: Mapping[watch.Pair, str]
    odd: Sequence[Candidate]
    boundary: Boundary | None
    implausible: str | None
    points: int


def note(
    session: Session, *, series: TouchedSeries, standing: Standing, policy: DetectionPolicy, now: datetime
) -> None:
    """Write the last word on a series and the figures of its noise."""
    found = detect(standing.segment) if len(standing.segment) >= MIN_SEGMENT else None
    verdict, reason = _on_record(standing) or _of_points(series, standing, found, policy)
    facts: dict[str, object] = {
        "points": len(standing.segment),
        "floor": policy.min_effect,
        "false_alarm_rate": false_alarm_rate(taken_back=len(standing.settled), points=standing.points),
    }
    if found is not None:
        facts |= {
            "noise": found.noise_floor,
            "detectable": found.smallest_detectable,
            "autocorrelation": found.autocorrelation,
            "bimodal": None if found.bimodal is None else asdict(found.bimodal),
            "drift": None if found.drift is None else asdict(found.drift),
            "detector": f"{changepoint.DETECTOR}/{changepoint.DETECTOR_VERSION}",
        }
    points.note_verdict(session, series_id=series.series_id, verdict=verdict, reason=reason, detection=facts, now=now)


def false_alarm_rate(*, taken_back: int, points: int) -> float:
    """Return the share of points that raised a suspicion which its re-run took back: the most that could be told."""
    return (taken_back + PRIOR_RATE * PRIOR_POINTS) / (points + PRIOR_POINTS)


def _on_record(standing: Standing) -> Word | None:
    """Return the word that stands written, whatever the newest points say."""
    if standing.implausible is not None:
        return Verdict.IMPLAUSIBLE, standing.implausible
    for entry in reversed(standing.changes):
        if entry.change.confirmed_at is None and entry.change.withdrawn_at is None:
            if entry.change.restarts_baseline:
                return Verdict.ENVIRONMENT, "the machine changed where the level did; an interleaved run was ordered"
            return SUSPECTED, "an interleaved re-run of the two commits has been ordered"
    for entry in reversed(standing.changes):
        change = entry.change
        if change.direction == Direction.REGRESSION and entry.state in OPEN_REGRESSION_STATES:
            interval = f"{change.effect_low:+.1%} to {change.effect_high:+.1%}"
            reason = f"{change.effect:+.1%} ({interval}) against the level before it, interleaved; open"
            return Verdict.REGRESSION, reason
    return None


def _of_points(series: TouchedSeries, standing: Standing, found: Detection | None, policy: DetectionPolicy) -> Word:
    if found is None:
        return _young(standing)
    if standing.odd:
        reason = standing.settled[standing.odd[-1].pair]
        return (Verdict.CANNOT_TELL if reason == UNPROVED else Verdict.NO_CHANGE), reason
    judgement = judge(found, better=Better(series.direction), floors=Floors(min_effect=policy.min_effect))
    if judgement.verdict in {Verdict.REGRESSION, Verdict.IMPROVEMENT}:
        reason = f"{judgement.effect:+.1%} that no step explains better than a trend, or that does not stand out"
        return Verdict.DRIFT if found.drift is not None else Verdict.CANNOT_TELL, reason
    if found.bimodal is not None and judgement.verdict in {Verdict.NO_CHANGE, Verdict.CANNOT_TELL}:
        modes = found.bimodal
        return Verdict.BIMODAL, f"two levels {modes.gap:.1%} apart, {modes.upper_share:.0%} of points on the upper one"
    return judgement.verdict, judgement.reason


def _young(standing: Standing) -> Word:
    """Say why a segment has no baseline yet."""
    have = f"{len(standing.segment)} of {MIN_SEGMENT} points of a baseline"
    last = standing.changes[-1].change if standing.changes else None
    if last is not None and last.restarts_baseline:
        return Verdict.ENVIRONMENT, f"{last.withdrawn_reason or 'the machine changed'}; {have}"
    if last is not None and last.direction == Direction.IMPROVEMENT and last.confirmed_at is not None:
        return Verdict.IMPROVEMENT, f"{last.effect:+.1%} ({last.effect_low:+.1%} to {last.effect_high:+.1%}); {have}"
    if standing.boundary is not None:
        reason = f"{standing.boundary.words}: not compared with older points; {have}"
        same_meaning = standing.boundary.kind is BoundaryKind.ENVIRONMENT
        return (Verdict.ENVIRONMENT if same_meaning else Verdict.NOT_COMPARABLE), reason
    return Verdict.CANNOT_TELL, have


def note_endings(session: Session, *, run: Run, now: datetime) -> None:
    """Say of each series that the newest run did not bring where its data stop."""
    for ending in watch.endings(session, run=run):
        reason = (
            f"data stop at commit {ending.last_position} ({ending.last_sha[:12]}): the run of commit "
            f"{ending.missed_position} ({ending.missed_sha[:12]}) did not bring it"
        )
        points.set_verdict(session, series_id=ending.series_id, verdict=Verdict.CANNOT_TELL, reason=reason, now=now)
