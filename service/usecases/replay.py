"""Replay: what another detector or another policy would have made of the stored history, before it is adopted.

In shadow: nothing is written. Each series is read once and run through the detector as a whole, and its steps are laid
beside the change points that the service has recorded: kept, lost, or new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from sqlalchemy.orm import Session

from service.domain.points import Point, to_points
from service.stats import changepoint
from service.store import histories, points, regressions
from service.store.histories import StoredSeries
from service.store.regressions import SeriesChange
from service.usecases.policy import DetectionPolicy

MIN_LEVEL = 3  # points of a level that the detector needs
NEAR = 1  # points by which two detectors may place one step differently

Steps = Callable[[Sequence[Point]], tuple[changepoint.Change, ...]]


@dataclass(frozen=True, slots=True)
class Detector:
    """A detector that can be replayed, by its name and version."""

    name: str
    steps: Steps


@dataclass(frozen=True, slots=True)
class Difference:
    """One step that the shadow and the record do not share, or do."""

    kind: str  # "kept" | "lost" | "new"
    workload: str
    position: int
    effect: float


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of a replay."""

    detector: str
    series: int
    points: int
    differences: tuple[Difference, ...]

    def count(self, kind: str) -> int:
        """How many differences are of a kind."""
        return sum(difference.kind == kind for difference in self.differences)


def _current(history: Sequence[Point]) -> tuple[changepoint.Change, ...]:
    values = np.array([point.value_s for point in history])
    return changepoint.detect(values, se=values * np.array([point.se for point in history])).changes


def _first_look(history: Sequence[Point]) -> tuple[changepoint.Change, ...]:
    """Detect without the points' own standard errors, to see what they are worth."""
    return changepoint.detect(np.array([point.value_s for point in history])).changes


CURRENT = f"{changepoint.DETECTOR}/{changepoint.DETECTOR_VERSION}"
DETECTORS = {CURRENT: _current, f"{CURRENT}-unweighted": _first_look}


def replay(
    session: Session,
    *,
    repository_id: int,
    since: datetime | None,
    policy: DetectionPolicy,
    detector: str = CURRENT,
) -> Replay:
    """Run a detector over the stored series of a repository and compare its steps with the record.

    Raises LookupError for a detector that is not there.
    """
    if detector not in DETECTORS:
        raise LookupError(f"there is no detector {detector!r}; known: {', '.join(sorted(DETECTORS))}")
    stored = histories.series_of(session, repository_id=repository_id)
    ids = [series.series_id for series in stored]
    start = histories.first_position_since(session, repository_id=repository_id, since=since)
    figures = points.figures_of(session, series_ids=ids, since_position=start)
    recorded = regressions.changes_of(session, series_ids=ids)
    differences: list[Difference] = []
    count = 0
    for series in stored:
        history = to_points(figures[series.series_id])
        count += len(history)
        changes = [change for change in recorded[series.series_id] if change.bad_position >= start]
        differences.extend(_differ(series, history, changes, policy=policy, steps=DETECTORS[detector]))
    return Replay(detector=detector, series=len(stored), points=count, differences=tuple(differences))


def _differ(
    series: StoredSeries,
    history: Sequence[Point],
    recorded: Sequence[SeriesChange],
    *,
    policy: DetectionPolicy,
    steps: Steps,
) -> Iterator[Difference]:
    floor = policy.of(series.workload_key).min_effect
    shadow = [step for step in steps(history) if abs(step.effect) >= floor] if len(history) >= MIN_LEVEL else []
    index_of = {point.position: index for index, point in enumerate(history)}
    unmatched = list(shadow)
    for entry in recorded:
        index = index_of.get(entry.bad_position)
        match = next((step for step in unmatched if index is not None and abs(step.index - index) <= NEAR), None)
        if match is not None:
            unmatched.remove(match)
        if entry.change.confirmed_at is None or entry.change.withdrawn_at is not None:
            continue  # it waits for its proof, or the machine made it
        too_new = index is not None and len(history) - index < MIN_LEVEL  # the detector cannot see it yet
        kept = match is not None or (too_new and abs(entry.change.effect) >= floor)
        yield Difference("kept" if kept else "lost", series.workload_key, entry.bad_position, entry.change.effect)
    for step in unmatched:
        yield Difference("new", series.workload_key, history[step.index].position, step.effect)
