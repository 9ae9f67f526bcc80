"""Examination of one series: its stable segments, and the steps that its points make suspicious. Pure.

What is suspicious depends on the points and on what was settled before, not on the order in which points came:

- the first and the last point of a segment and the newcomer are tested against the others of their level
  (`stats.suspect`): when the first point of another level arrives, in whatever order, it is the newcomer, mostly at
  an end of its segment;
- steps of three points a side (`stats.changepoint`), if the newcomer is near them (`LATE_POINTS`);
- steps that add up: the newest level against the best stable one of the segment.

A step that an interleaved run has taken back is settled; if it persists with three points a side, the machine made it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from service.domain.points import Point
from service.stats import changepoint
from service.stats.changepoint import Detection
from service.stats.suspect import SuspectRule, Suspicion, suspect
from service.stats.verdict import Better, Floors, Judgement, Verdict, judge
from service.store.regressions import SeriesChange

MIN_SEGMENT = 3
Z95 = 1.96
ENDS = 2  # of a segment: both are tested


@dataclass(frozen=True, slots=True)
class Candidate:
    """A suspected step of one series between two measured commits; `segment` is what it was found in."""

    good: Point
    bad: Point
    before_s: float
    after_s: float
    effect: float
    effect_low: float
    effect_high: float
    z: float
    p_value: float
    persistent: bool
    """Three points a side show it: more than one odd point."""
    segment: Sequence[Point]

    @property
    def pair(self) -> tuple[int, int]:
        """The two commits."""
        return self.good.commit_id, self.bad.commit_id

    def environments(self) -> tuple[frozenset[int], frozenset[int]]:
        """Where the points before and after the step were measured."""
        before = [p.environments for p in self.segment if p.position <= self.good.position]
        after = [p.environments for p in self.segment if p.position >= self.bad.position]
        return frozenset().union(*before), frozenset().union(*after)


def window(history: Sequence[Point], *, commit_id: int, size: int) -> Sequence[Point]:
    """Return at most `size` points: the newest, or those around an older commit's point. Bounded work."""
    here = next((index for index, point in enumerate(history) if point.commit_id == commit_id), len(history))
    end = min(len(history), max(here + size // 2, size))
    return history[max(0, end - size) : end]


def stable_segments(history: Sequence[Point], changes: Sequence[SeriesChange]) -> list[Sequence[Point]]:
    """Cut a history at its change points; none of the segments is empty.

    A commit strictly inside a range that is still being searched belongs to neither side.
    """
    outside = [p for p in history if not any(c.good_position < p.position < c.bad_position for c in changes)]
    cuts = sorted({change.bad_position for change in changes})
    segments: list[list[Point]] = [[] for _ in range(len(cuts) + 1)]
    for point in outside:
        segments[sum(cut <= point.position for cut in cuts)].append(point)
    return [segment for segment in segments if segment]


def without_odd(segment: Sequence[Point], settled: Collection[tuple[int, int]]) -> Sequence[Point]:
    """Leave out the points that stood apart, were found equal by an interleaved run, and were not followed.

    One flaky point must not widen the noise until it hides the next step. More than one in ten is a habit of the
    series, a second mode: those stay.
    """
    odd = {
        here.commit_id
        for before, here, after in zip(segment, segment[1:], segment[2:], strict=False)
        if (before.commit_id, here.commit_id) in settled
        and abs(math.log(after.value_s / before.value_s)) < abs(math.log(after.value_s / here.value_s))
    }
    if len(odd) > max(1, len(segment) // 10):
        return segment
    return [point for point in segment if point.commit_id not in odd]


def detect(segment: Sequence[Point]) -> Detection:
    """Run the change-point detector for one point at a time; hosts that alternate are levelled."""
    values = np.array([point.value_s for point in segment])
    hosts = np.array([min(point.environments, default=0) for point in segment])
    return changepoint.detect_tail(values, se=values * np.array([point.se for point in segment]), hosts=hosts)


def candidates(segment: Sequence[Point], *, commit_id: int, better: Better, min_effect: float) -> list[Candidate]:
    """Return the steps of one stable segment that are worth an interleaved re-run, in first-parent order."""
    bounds, found = [0, len(segment)], list[Candidate]()
    if len(segment) >= 2 * MIN_SEGMENT:
        detection = detect(segment)
        bounds = [0, *(change.index for change in detection.changes), len(segment)]
        steps = list(_steps(segment, detection, commit_id=commit_id, min_effect=min_effect))
        found += steps
        if not any(step.bad is segment[detection.last_level.start] for step in steps):
            found += _adding_up(segment, detection, better=better, min_effect=min_effect)
    first, last = segment[: bounds[1]], segment[bounds[-2] :]
    found += _end_apart(last, min_effect=min_effect, newest=True)
    found += _end_apart(first, min_effect=min_effect, newest=False)
    for start, end in pairwise(bounds):
        found += _inside_apart(segment[start:end], commit_id=commit_id, min_effect=min_effect)
    unique = {candidate.pair: candidate for candidate in reversed(found)}
    return sorted(unique.values(), key=lambda candidate: candidate.bad.position)


def _steps(segment: Sequence[Point], detection: Detection, *, commit_id: int, min_effect: float) -> Iterator[Candidate]:
    here = next((i for i, point in enumerate(segment) if point.commit_id == commit_id), len(segment) - 1)
    as_of_here = replace(detection, n=here + 1)
    for change in changepoint.new_alarms(as_of_here, ()):
        if change.index - here > changepoint.LATE_POINTS or abs(change.effect) < min_effect:
            continue
        yield Candidate(
            good=segment[change.index - 1],
            bad=segment[change.index],
            before_s=change.before,
            after_s=change.after,
            effect=change.effect,
            effect_low=change.effect_low,
            effect_high=change.effect_high,
            z=change.z,
            p_value=change.p_value,
            persistent=True,
            segment=segment,
        )


def _end_apart(level: Sequence[Point], *, min_effect: float, newest: bool) -> list[Candidate]:
    """Test the last (or first) point of a level against the others of it."""
    if len(level) < 2:
        return []
    odd, others = (level[-1], level[:-1]) if newest else (level[0], level[1:])
    neighbour = others[-1] if newest else others[0]
    found = suspect(
        [point.value_s for point in others],
        odd.value_s,
        se=math.hypot(odd.se, neighbour.se),
        rule=SuspectRule(min_effect=min_effect),
    )
    if found is None:
        return []
    return [_arrival(found, odd, neighbour, level) if newest else _departure(found, odd, neighbour, level)]


def _inside_apart(level: Sequence[Point], *, commit_id: int, min_effect: float) -> list[Candidate]:
    """Test a newcomer between points of one level: a commit that came and went is two steps, there and back."""
    here = next((i for i, point in enumerate(level) if point.commit_id == commit_id), 0)
    if not 0 < here < len(level) - 1:
        return []
    odd, before, after = level[here], level[here - 1], level[here + 1]
    found = suspect(
        [point.value_s for point in (*level[:here], *level[here + 1 :])],
        odd.value_s,
        se=math.hypot(odd.se, max(before.se, after.se)),
        rule=SuspectRule(min_effect=min_effect),
    )
    if found is None:
        return []
    return [_arrival(found, odd, before, level), _departure(found, odd, after, level)]


def _arrival(found: Suspicion, odd: Point, neighbour: Point, level: Sequence[Point]) -> Candidate:
    """Return the step from the level to the odd point behind its neighbour."""
    shift = math.log1p(found.effect)
    return Candidate(
        good=neighbour,
        bad=odd,
        before_s=found.before,
        after_s=found.after,
        effect=found.effect,
        effect_low=math.expm1(shift - Z95 * found.sd),
        effect_high=math.expm1(shift + Z95 * found.sd),
        z=found.z,
        p_value=min(1.0, ENDS * found.p_value),
        persistent=False,
        segment=level,
    )


def _departure(found: Suspicion, odd: Point, neighbour: Point, level: Sequence[Point]) -> Candidate:
    """Return the step from the odd point to the level that begins with its neighbour."""
    there = _arrival(found, odd, neighbour, level)
    return replace(
        there,
        good=odd,
        bad=neighbour,
        before_s=found.after,
        after_s=found.before,
        effect=1 / (1 + there.effect) - 1,
        effect_low=1 / (1 + there.effect_high) - 1,
        effect_high=1 / (1 + there.effect_low) - 1,
        z=-found.z,
    )


def _adding_up(segment: Sequence[Point], detection: Detection, *, better: Better, min_effect: float) -> list[Candidate]:
    """Compare the newest level with the best stable one: steps below the floor, one by one, that add up."""
    judgement = judge(detection, better=better, floors=Floors(min_effect=min_effect))
    best, level = judgement.baseline, detection.last_level
    if judgement.verdict is not Verdict.REGRESSION or best is None or best.start + best.n >= level.start:
        return []
    z = math.log1p(judgement.effect) / max(_se(judgement), 1e-9)
    return [
        Candidate(
            good=segment[best.start + best.n - 1],
            bad=segment[level.start],
            before_s=best.mean,
            after_s=level.mean,
            effect=judgement.effect,
            effect_low=judgement.effect_low,
            effect_high=judgement.effect_high,
            z=z,
            p_value=min(1.0, len(detection.levels) * math.erfc(abs(z) / math.sqrt(2))),
            persistent=True,
            segment=segment,
        )
    ]


def _se(judgement: Judgement) -> float:
    return (math.log1p(judgement.effect_high) - math.log1p(judgement.effect_low)) / (2 * Z95)


def split_settled(
    found: Collection[Candidate], settled: Collection[tuple[int, int]]
) -> tuple[list[Candidate], list[Candidate], list[Candidate]]:
    """Sort candidates into new ones, settled ones that persist (the machine's), and settled odd points."""
    fresh = [c for c in found if c.pair not in settled]
    old = [c for c in found if c.pair in settled]
    return fresh, [c for c in old if c.persistent], [c for c in old if not c.persistent]


def families_moved(
    found: Sequence[tuple[str, Candidate]], *, watched: Collection[str], min_families: int = 4
) -> Callable[[Candidate], float]:
    """Return the share of watched families that moved at a candidate's commit, its way; 0 where few are watched."""
    moved: dict[tuple[int, bool], set[str]] = {}
    for family, candidate in found:
        moved.setdefault((candidate.bad.commit_id, candidate.effect > 0), set()).add(family)

    def share(candidate: Candidate) -> float:
        if len(watched) < min_families:
            return 0.0
        return len(moved.get((candidate.bad.commit_id, candidate.effect > 0), ())) / len(watched)

    return share
