"""Sentences for people: why a bisection ended as it did, and what would take it further."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from service.stats.bisect.belief import Belief
from service.stats.bisect.types import BisectProblem, Blame, Reason

SHORT_SHA = 9


def percent(log_ratio: float) -> str:
    """A log ratio as people say it."""
    return f"{100 * math.expm1(log_ratio):+.1f} %"


def why_no_change(problem: BisectProblem, belief: Belief) -> tuple[Reason, str]:
    """Environment when today's good end has the alarm's level, transient when today's bad end has the old one."""
    today_size = percent(belief.evidence.sign * measured_effect(belief)[0])
    base = f"the ends differ by {today_size} today, not {percent(problem.alarm_effect)}"
    if problem.before_level is not None and problem.after_level is not None:
        today = belief.evidence.sign * float(belief.evidence.log_s.mean())
        if abs(today - problem.after_level) < abs(today - problem.before_level):
            return (
                Reason.ENVIRONMENT,
                f"{base}: the good end has the alarm's level too, so the machine changed",
            )
        return Reason.TRANSIENT, f"{base}: the bad end is back at the old level"
    if problem.environment_changed:
        return Reason.ENVIRONMENT, f"{base}: the environment changed with the alarm"
    return Reason.NOT_REPRODUCED, base


def measured_effect(belief: Belief) -> tuple[float, float]:
    """Difference of the ends as measured, without the alarm as a prior, and its sd (infinite without runs)."""
    inverse = np.linalg.pinv(belief.information.matrix, hermitian=True)
    if belief.information.matrix[-1, -1] <= 0 or belief.information.matrix[0, 0] <= 0:
        return 0.0, math.inf
    contrast = np.zeros(len(inverse))
    contrast[0], contrast[-1] = -1.0, 1.0
    inflate = belief.run_sd / belief.scale
    size = float(contrast @ inverse @ belief.information.vector)
    return size, inflate * math.sqrt(max(float(contrast @ inverse @ contrast), 0.0))


def why_blamed(blames: Sequence[Blame], problem: BisectProblem) -> str:
    """One sentence for one or several steps; a commit is called by its short id, which people can look up."""
    name = {candidate.position: candidate.sha[:SHORT_SHA] for candidate in problem.candidates}
    parts = []
    for blame in blames:
        first, last = (name.get(position, f"commit {position}") for position in (blame.lo + 1, blame.hi))
        where = last if blame.hi - blame.lo == 1 else f"{first} to {last}"
        parts.append(
            f"{where}: {percent(blame.effect)} ({percent(blame.effect_low)} to {percent(blame.effect_high)}),"
            f" probability {blame.probability:.3f}"
        )
    return "; ".join(parts)


def runs_needed(problem: BisectProblem, belief: Belief) -> int:
    """A rough figure of the runs for a search from here: entropy over capacity, twice for the partners.

    One run tells about d^2/8 nats of which side of a step of d noise sds it is on (small d).
    """
    ratio = max(abs(problem.alarm_effect), 1e-9) / max(belief.run_sd, 1e-12)
    mass = belief.gap_mass[belief.gap_mass > 0]
    inner = sum(m * math.log(max(belief.levels[i + 1] - belief.levels[i], 1)) for i, m in enumerate(belief.gap_mass))
    entropy = float(-(mass * np.log(mass)).sum()) + float(inner)
    per_run = min(ratio**2 / 8.0, math.log(2.0)) / 2.0
    return math.ceil((entropy + 6.0) / per_run)


def what_it_takes(problem: BisectProblem, belief: Belief) -> str:
    """How much more measuring would probably settle it."""
    runs = runs_needed(problem, belief)
    return f"about {runs} more runs ({runs * problem.measure_cost_s:.0f} device-seconds)"
