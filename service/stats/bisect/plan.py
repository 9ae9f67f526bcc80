"""What to run: the ends until the step is there, a sandwich for every clear interval, else the best search batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.stats.bisect.belief import Belief
from service.stats.bisect.likelihood import RunSums
from service.stats.bisect.probe import is_tight, pair_probe, search_probe
from service.stats.bisect.types import BisectProblem, Phase, Probe

ENDS_CLEAR = 0.05  # P(none) under which the search may start
ENDS_BACK = 0.3  # P(none) over which a search goes back to the ends
ENDS_NATS = 4.0
BAYES_FACTOR = 20.0
SANDWICH_NATS = 4.5  # planned, so that most sandwiches need one batch
OTHER_MASS = 0.07
MAX_PAIRS = 16
STRONG_RATIO = 1.5  # from here on a search may start beside the ends


@dataclass(frozen=True, slots=True)
class Proof:
    """Tight gaps with a clear step: those whose fresh pairs agree, and those still to be proven."""

    confirmed: tuple[int, ...]
    doubtful: tuple[int, ...]


def prove(problem: BisectProblem, belief: Belief) -> Proof:
    """Sort the clear intervals by whether their sandwich has spoken."""
    clear = [
        int(g)
        for g in np.argsort(-belief.gap_mass)
        if belief.gap_mass[g] >= problem.confidence and is_tight(belief, int(g))
    ]
    agreed = {g for g in clear if _log_bayes_factor(belief, g) >= math.log(BAYES_FACTOR)}
    return Proof(tuple(g for g in clear if g in agreed), tuple(g for g in clear if g not in agreed))


def runs_left(problem: BisectProblem, belief: Belief, running: Sequence[Probe]) -> int:
    """How many runs the budget still pays for."""
    spent = belief.evidence.measurements + sum(len(p.order) for p in running)
    return int((problem.budget_s + 1e-6) / max(problem.measure_cost_s, 1e-9)) - spent


def plan(problem: BisectProblem, belief: Belief, proof: Proof, running: Sequence[Probe]) -> Probe | None:
    """The next batch beside those that run; None when nothing is worth starting."""
    left = runs_left(problem, belief, running)
    if left < 2:
        return None
    searched = any(p.phase != Phase.ENDS for p in running) or len(belief.levels) > 2
    if belief.none > (ENDS_BACK if searched else ENDS_CLEAR):
        last = belief.evidence.groups.count - 1
        size = abs(problem.alarm_effect)
        ends = _share_of_pairs(
            problem, belief, (0, last), size=size, nats=ENDS_NATS, phase=Phase.ENDS, running=running, left=left
        )
        if ends is not None:
            return ends
        if problem.environment_changed or size < STRONG_RATIO * belief.run_sd:
            return None
    for gap in proof.doubtful:
        sides = (int(belief.levels[gap]), int(belief.levels[gap + 1]))
        size = float(belief.gap_size[gap])
        pairs = _share_of_pairs(
            problem, belief, sides, size=size, nats=SANDWICH_NATS, phase=Phase.SANDWICH, running=running, left=left
        )
        if pairs is not None:
            return pairs
    settled = frozenset([*proof.confirmed, *proof.doubtful])
    others = float(sum(m for g, m in enumerate(belief.gap_mass) if g not in settled))
    if others <= OTHER_MASS:
        return None
    return search_probe(problem, belief, settled=settled, running=running, runs_left=left)


def _share_of_pairs(
    problem: BisectProblem,
    belief: Belief,
    sides: tuple[int, int],
    *,
    size: float,
    nats: float,
    phase: Phase,
    running: Sequence[Probe],
    left: int,
) -> Probe | None:
    """One worker's part of the pairs that should yield `nats`; None when enough of them run."""
    per_pair = size**2 / (4.0 * belief.run_sd**2)
    wanted = min(max(math.ceil(nats / max(per_pair, 1e-9)), 2), MAX_PAIRS * max(problem.workers, 1))
    of_position = belief.evidence.groups.of_position
    mine = [p for p in running if p.phase == phase and of_position[p.position] == sides[1]]
    wanted -= sum(len(p.order) // 2 for p in mine)
    if wanted <= 0 or (mine and wanted < 2):
        return None
    part = min(max(math.ceil(wanted / max(problem.workers - len(mine), 1) / 2.0) * 2, 2), MAX_PAIRS)
    return pair_probe(belief, *sides, runs=max(1, min(part, left // 2)), phase=phase)


def _log_bayes_factor(belief: Belief, gap: int) -> float:
    """Evidence of the sandwich runs alone for a step in this gap, against none."""
    evidence = belief.evidence
    low, high = belief.levels[gap], belief.levels[gap + 1]
    mine = evidence.sandwich & np.isin(evidence.group, [low, high])
    if not mine.any():
        return 0.0
    info = RunSums.of(
        weight=belief.weight[mine],
        log_s=evidence.log_s[mine],
        level=(evidence.group[mine] == high).astype(np.int64),
        block=evidence.block[mine],
        levels=2,
        variance=belief.run_sd**2,
    ).within_blocks()
    precision, value = float(info.matrix[1, 1]), float(info.vector[1])
    mean = float(belief.gap_size[gap])
    prior = 1.0 / max(float(belief.gap_size_sd[gap]), 0.2 * mean, 1e-12) ** 2
    total = precision + prior
    return 0.5 * ((value + prior * mean) ** 2 / total - prior * mean**2) - 0.5 * math.log(total / prior)
