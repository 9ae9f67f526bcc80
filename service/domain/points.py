"""Figures and points: many measurements of one commit become one point of a series.

A commit measured three times is one point with three runs behind it, not three points. The order of points is the
order of first parents, never of dates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from service.contract import RunReason

# Two-sided 95 % quantiles of Student's t for 1, 2, 3 ... degrees of freedom; the normal one beyond the table.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
Z95 = 1.959964
HISTORY_REASONS = frozenset({RunReason.PUSH, RunReason.NIGHTLY, RunReason.BACKFILL, RunReason.MANUAL})
"""Runs that detection reads as history. Interleaved runs (confirm, bisection, verify) compare commits within one run;
as points they would put another day, and perhaps another machine, among the old ones, in the order of the search."""
POINT_REASONS = HISTORY_REASONS | {RunReason.BRIDGE}
"""Runs whose figures are points: the history, and the commits that a new environment measured again."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement's figure: seconds, and the half-width of its 95 % interval."""

    commit_id: int
    position: int
    value_s: float
    half_width_s: float | None
    run_id: int
    processes: int = 0  # behind the interval; 0 = unknown, the interval is taken as a normal one
    environment_id: int | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One commit of one series: `value_s` in seconds, `se` its relative standard error, `runs` how many runs agree."""

    commit_id: int
    position: int
    value_s: float
    se: float
    runs: int
    environments: frozenset[int] = frozenset()  # where its runs were measured


def to_points(figures: Iterable[Figure]) -> tuple[Point, ...]:
    """Collapse figures to one point per commit, in first-parent order, whatever the order of arrival."""
    ordered = sorted(figures, key=lambda figure: (figure.position, figure.run_id))
    return tuple(_collapse(list(group)) for _, group in groupby(ordered, key=lambda figure: figure.commit_id))


def _collapse(figures: list[Figure]) -> Point:
    """Average the logarithms of a commit's runs.

    The standard error is the larger of what the runs claim (their intervals, combined) and what they show (the
    spread between them): a run cannot see the noise that differs from run to run.
    """
    logs = [math.log(figure.value_s) for figure in figures]
    count = len(logs)
    mean = sum(logs) / count
    claimed = [(figure.half_width_s or 0.0) / reach(figure.processes) / figure.value_s for figure in figures]
    within = math.sqrt(sum(se * se for se in claimed)) / count
    between = 0.0
    if count > 1:
        between = math.sqrt(sum((x - mean) ** 2 for x in logs) / (count - 1) / count)
    first = figures[0]
    return Point(
        commit_id=first.commit_id,
        position=first.position,
        value_s=math.exp(mean),
        se=max(within, between),
        runs=count,
        environments=frozenset(f.environment_id for f in figures if f.environment_id is not None),
    )


def reach(processes: int) -> float:
    """Return how many standard errors the half-width of a 95 % interval over `processes` values holds."""
    freedom = processes - 1
    return T95[freedom - 1] if 1 <= freedom <= len(T95) else Z95
