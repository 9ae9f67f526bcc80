"""Which batch next: the one with the most expected information per second.

The answer of a batch at commit p is its level between a commit surely before the step and one surely after it.  The
arrangements of steps predict a few levels; the gain is the mutual information between the arrangement and a Gaussian
reading of that level (Lindley, 1956).  A second step of a culprit that is already clear is not worth a build, so
arrangements count here only as far as they put the culprit elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.stats.bisect.belief import Belief
from service.stats.bisect.evidence import Floats, Ints
from service.stats.bisect.types import BisectProblem, Phase, Probe

RUN_CHOICES = (  # runs of the commit, runs of its partners
    (1, 1), (2, 1), (2, 2), (4, 2), (3, 3), (4, 4), (6, 3), (8, 4), (6, 6), (8, 8),
    (12, 6), (12, 12), (16, 8), (16, 16), (24, 12), (24, 24), (32, 32),
)  # fmt: skip
SURE = 0.05  # share of the open mass that may lie beyond a partner
BIN = 0.125  # of the step
BUILD_OK_RUNS = 10.0  # prior builds, one in twenty of them broken
LEAST_SPREAD = 0.2
REACH = 2.0  # levels further than this many steps from the reference are counted there
BATCH_OVERHEAD_RUNS = 1.0  # starting a batch costs about as much as a run
BUILD_SHARE = 0.3  # of a build's cost that its first batch pays; later batches use the build too
BATCH_OVERHEAD_SHARE = 0.02  # deciding anew is worth little against all that was measured
PREDICTED_DRIFT = 0.4  # share of the drift's variance that the last batches do not foretell
LOW, BOTH, HIGH = 0.0, 0.5, 1.0  # the partner below, both in equal parts, the partner above
REFERENCES = (LOW, BOTH, HIGH)


@dataclass(frozen=True, slots=True)
class Spot:
    """A commit that could be measured: group, the gap or level it belongs to, and its split."""

    group: int
    below: int  # index of the measured level at or before it
    share: float  # of the gap's mass at or before it; 0 when it is that level itself
    build_s: float
    chance: float
    low: int  # index of the nearest level surely before the step
    high: int


def build_chance(belief: Belief) -> Floats:
    """P(it builds) per group: broken builds come in runs."""
    evidence = belief.evidence
    count = evidence.groups.count
    tried = len(evidence.failed) + int(evidence.built.sum())
    base = (BUILD_OK_RUNS * 0.95 + tried - len(evidence.failed)) / (BUILD_OK_RUNS + tried)
    chance = np.full(count, base)
    index = np.arange(count)
    for group in evidence.failed:
        chance *= 1.0 - 0.6 * np.exp(-np.maximum(np.abs(index - group) - 1, 0) / 3.0)
    chance[evidence.built] = 1.0
    chance[list(evidence.failed)] = 0.0
    return chance


def is_tight(belief: Belief, gap: int) -> bool:
    """No commit inside the gap is left to try."""
    inside = range(int(belief.levels[gap]) + 1, int(belief.levels[gap + 1]))
    return all(group in belief.evidence.failed for group in inside)


def interleave(inner: int, outer: Sequence[int], runs: int, partner_runs: int) -> tuple[int, ...]:
    """`runs` runs of `inner` among `partner_runs` of its partners, in an order that cancels a linear drift.

    With as many partners as runs: units of partner, inner, inner, partner.  With half as many: inner, partner, inner.
    Every second unit is turned round, so that no partner is always the earlier one.
    """
    low, high = outer[0], outer[-1]
    order: list[int] = []
    if partner_runs < runs:
        for index in range(partner_runs):
            order += [inner, (low, high)[index % 2], inner]
        return tuple(order)
    for index in range(runs // 2):
        unit = (low, inner, inner, high)
        if low == high and index % 2 == 1:
            unit = (inner, low, low, inner)
        order += unit if index % 2 == 0 or low == high else unit[::-1]
    if runs % 2:
        order += [low, inner] if (runs // 2) % 2 == 0 else [inner, high]
    return tuple(order)


def pair_probe(belief: Belief, lo: int, hi: int, *, runs: int, phase: Phase) -> Probe:
    """Fresh pairs of two groups."""
    low, high = (int(belief.evidence.groups.probe[g]) for g in (lo, hi))
    return Probe(high, (low,), interleave(high, (low,), runs, runs), 2 * runs, phase)


def search_probe(
    problem: BisectProblem, belief: Belief, *, settled: frozenset[int], running: Sequence[Probe], runs_left: int
) -> Probe | None:
    """The best batch, or None when nothing can tell more."""
    open_mass = np.array([0.0 if g in settled else m for g, m in enumerate(belief.gap_mass)])
    if open_mass.sum() <= 0:
        return None
    of_position = belief.evidence.groups.of_position
    taken = {int(of_position[p.position]) for p in running}
    taken = {g for g in taken if not belief.evidence.built[g]}  # a second worker may measure what is built
    spots = _spots(belief, open_mass, taken, wide=bool(running))
    if not spots:
        return None
    size = max(belief.effect, 0.25 * abs(problem.alarm_effect))
    choices = [c for c in RUN_CHOICES if sum(c) <= max(runs_left, 2)]
    spread = np.array([_spread(problem, belief, choice, size) for choice in choices])
    if running:
        beside = _gains_beside(
            problem, belief, spots=spots, open_mass=open_mass, running=running, spread=spread, size=size
        )
        gains = np.repeat(beside[:, None, :], len(REFERENCES), axis=1)
    else:
        gains = _gains(belief, spots, spread, size)
    overhead = BATCH_OVERHEAD_RUNS + BATCH_OVERHEAD_SHARE * belief.evidence.measurements
    measuring = np.array([sum(c) + overhead for c in choices]) * problem.measure_cost_s
    cost = BUILD_SHARE * np.array([s.build_s for s in spots])[:, None] + measuring[None, :]
    chance = np.array([s.chance for s in spots])
    rate = gains * chance[:, None, None] / np.maximum(cost, 1e-9)[:, None, :]
    rate[:, REFERENCES.index(BOTH), [c[1] == 1 for c in choices]] = 0.0  # one run has one partner
    spot, reference, runs = np.unravel_index(int(np.argmax(rate)), rate.shape)
    if rate[spot, reference, runs] <= 0:
        return None
    return _batch(belief, spots[spot], choices[runs], REFERENCES[reference])


def _spots(belief: Belief, open_mass: Floats, taken: set[int], *, wide: bool) -> list[Spot]:
    evidence = belief.evidence
    groups = evidence.groups
    chance = build_chance(belief)
    before = np.concatenate([[0.0], np.cumsum(open_mass)]) / open_mass.sum()
    spots = []
    for gap, mass in enumerate(open_mass):
        low, high = int(belief.levels[gap]), int(belief.levels[gap + 1])
        if gap and low not in taken:
            spots.append(Spot(low, gap, 0.0, 0.0, 1.0, *_partners(before, gap - 1, gap + 1)))
        inside = np.arange(low + 1, high)
        inside = inside[(chance[inside] > 0) & ~np.isin(inside, list(taken))] if len(inside) else inside
        if mass < 1e-4 or not len(inside):
            continue
        total = float(groups.weight[low + 1 : high + 1].sum())
        share = np.cumsum(groups.weight[low + 1 : high + 1])[inside - low - 1] / total
        for pick in _picks(inside, share, chance, evidence.built, wide=wide):
            group = int(inside[pick])
            cost = 0.0 if evidence.built[group] else float(groups.build_cost_s[group])
            partners = _partners(before, gap, gap + 1)
            spots.append(Spot(group, gap, float(share[pick]), cost, float(chance[group]), *partners))
    return spots


def _partners(before: Floats, low: int, high: int) -> tuple[int, int]:
    """The nearest levels from `low` down and from `high` up with almost no open mass beyond them."""
    sure_low = np.flatnonzero(before[: low + 1] <= SURE)
    sure_high = np.flatnonzero(before[high:] >= 1 - SURE)
    return int(sure_low[-1]), high + int(sure_high[0])


def _picks(inside: Ints, share: Floats, chance: Floats, built: np.ndarray, *, wide: bool) -> set[int]:
    """Promising commits of a gap: the best splits among the built and among the others."""
    picks = set()
    for target in (0.2, 0.35, 0.5, 0.65, 0.8) if wide else (0.5,):
        value = _binary_entropy(np.clip(share + 0.5 - target, 0.0, 1.0)) * chance[inside]
        picks.add(int(np.argmax(value)))
        ready = value * built[inside]
        if ready.max() > 0:
            picks.add(int(np.argmax(ready)))
    return picks


def _binary_entropy(p: Floats) -> Floats:
    q = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-(q * np.log2(q) + (1 - q) * np.log2(1 - q)))


def _spread(problem: BisectProblem, belief: Belief, runs: tuple[int, int], size: float) -> float:
    """Sd of the level that a batch of so many runs and partner runs reads, in steps."""
    return max(math.sqrt(reading_variance(problem, belief, runs)) / size, LEAST_SPREAD)


def reading_variance(problem: BisectProblem, belief: Belief, runs: tuple[int, int]) -> float:
    """Variance of the level read by runs beside partners of known level, with an offset of known prior."""
    offset_precision = 1.0 / (PREDICTED_DRIFT * belief.drift**2)
    precision = runs[0] * (1.0 - runs[0] / (sum(runs) + offset_precision))
    return belief.run_sd**2 / precision + 2.0 * problem.build_offset_sd**2


def _gains(belief: Belief, spots: Sequence[Spot], spread: Floats, size: float) -> Floats:
    """(spots, references, runs) bits between the arrangement and the reading against that reference."""
    bins = round(2 * REACH / BIN) + 1
    table = np.concatenate([belief.level_means() / size, np.zeros((1, len(belief.levels)))])
    share = np.append(belief.probability, belief.none)
    rows = np.zeros((len(spots), len(REFERENCES), bins))
    for i, spot in enumerate(spots):
        low, high = table[:, spot.low], table[:, spot.high]
        for j, weight in enumerate(REFERENCES):
            base = (1 - weight) * low + weight * high
            for below, part in ((spot.below, 1 - spot.share), (spot.below + 1, spot.share)):
                if part > 0:
                    place = np.clip(np.rint((table[:, below] - base + REACH) / BIN), 0, bins - 1)
                    rows[i, j] += part * np.bincount(place.astype(np.int64), share, bins)
    flat = rows.reshape(-1, bins)
    return np.stack([_mixture_information(flat, float(s)).reshape(len(spots), len(REFERENCES)) for s in spread], axis=2)


def _mixture_information(rows: Floats, spread: float) -> Floats:
    """H(reading) - H(noise) in bits for rows of level histograms."""
    bins = rows.shape[1]
    grid = np.linspace(-REACH - 3 * spread, REACH + 3 * spread, 97)
    centre = -REACH + BIN * np.arange(bins)
    kernel = np.exp(-0.5 * ((grid[None, :] - centre[:, None]) / spread) ** 2)
    step = grid[1] - grid[0]
    kernel /= kernel.sum(axis=1, keepdims=True) * step
    density = np.maximum(rows @ kernel, 1e-300)
    own = -np.sum(np.where(kernel > 0, kernel * np.log2(np.maximum(kernel, 1e-300)), 0.0), axis=1) * step
    return np.asarray(np.maximum(-np.sum(density * np.log2(density), axis=1) * step - rows @ own, 0.0))


def _gains_beside(
    problem: BisectProblem,
    belief: Belief,
    *,
    spots: Sequence[Spot],
    open_mass: Floats,
    running: Sequence[Probe],
    spread: Floats,
    size: float,
) -> Floats:
    """Gain of a probe while others run: what they will probably answer is not asked twice.

    A running probe is taken as an erasure channel: it tells on which side of it the step is, or nothing.
    """
    groups = belief.evidence.groups
    mass = _commit_mass(belief, open_mass)
    total = mass.sum()
    known = [(0, 0.0)]
    for probe in running:
        split = int(groups.of_position[probe.position])
        inner = sum(1 for p in probe.order if groups.of_position[p] == split)
        counts = (inner, len(probe.order) - inner)
        half = np.array([[0.5, 0.5]])
        spread_here = _spread(problem, belief, counts, size)
        known.append((split, float(_two_level_information(half[:, 1], np.array([spread_here]))[0, 0])))
    cumulative = np.cumsum(mass) / total
    gains = np.zeros((len(spots), len(spread)))
    at = np.array([s.group for s in spots])
    for subset in range(2 ** (len(known) - 1)):
        answered = [known[j + 1] for j in range(len(known) - 1) if subset >> j & 1]
        silent = [known[j + 1] for j in range(len(known) - 1) if not subset >> j & 1]
        chance = math.prod(c for _, c in answered) * math.prod(1 - c for _, c in silent)
        edges = np.array(sorted({0, groups.count - 1, *(s for s, _ in answered)}))
        section = np.clip(np.searchsorted(edges, at, side="left"), 1, len(edges) - 1)
        low, high = cumulative[edges[section - 1]], cumulative[edges[section]]
        share = np.clip((cumulative[at] - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
        gains += chance * (high - low)[:, None] * _two_level_information(share, spread)
    return gains


def _two_level_information(share: Floats, spread: Floats) -> Floats:
    """(len(share), len(spread)) bits about a yes/no question read with Gaussian noise."""
    rows = np.zeros((len(share), round(2 * REACH / BIN) + 1))
    zero, one = round(REACH / BIN), round((REACH + 1) / BIN)
    rows[:, zero], rows[:, one] = 1 - share, share
    return np.stack([_mixture_information(rows, float(s)) for s in spread], axis=1)


def _commit_mass(belief: Belief, open_mass: Floats) -> Floats:
    """The open mass spread over the groups by their prior."""
    weight = belief.evidence.groups.weight
    gap = np.searchsorted(belief.levels, np.arange(len(weight)), side="left") - 1
    mass = np.zeros(len(weight))
    mass[1:] = weight[1:] * (open_mass / np.maximum(belief.gap_weight, 1e-300))[gap[1:]]
    return mass


def _batch(belief: Belief, spot: Spot, runs: tuple[int, int], reference: float) -> Probe:
    """The spot with partners from the nearest measured commits surely before and after the step."""
    probe = belief.evidence.groups.probe
    low, high = int(probe[belief.levels[spot.low]]), int(probe[belief.levels[spot.high]])
    position = int(probe[spot.group])
    outer = (low, high) if reference == BOTH else (low,) if reference == LOW else (high,)
    return Probe(position, outer, interleave(position, outer, *runs), sum(runs), Phase.SEARCH)
