"""What to believe after a log: a pure function of the problem and the log.

Runs are re-weighted as in a Student-t regression (Lange, Little and Taylor, 1989): the fit is the posterior mean, and
a run far from it counts less.  The noise comes from the residuals, with the detector's figure as a prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.stats.bisect.drift import SIZE_PRIOR, SIZES, Offsets, offsets
from service.stats.bisect.evidence import Evidence, Floats, Ints, collect
from service.stats.bisect.likelihood import (
    Hypotheses,
    Information,
    RunSums,
    arrangements,
    evidence_of_steps,
    with_build_offsets,
)
from service.stats.bisect.prior import Prior, prior_of
from service.stats.bisect.robust import STUDENT_DF, Runs, effects_of, fit
from service.stats.bisect.types import BisectProblem, Failure, Observation

CORE_SHARE = 0.85  # scale of the Student core over the sd of all runs
NOISE_PRIOR_RUNS = 20.0
ROUNDS = 3
UNSURE_SHARE = 0.25  # how much of the doubt about a level counts as noise of its runs
PLAUSIBLE = 64  # arrangements that get their own robust fit
LEAST_PLAUSIBLE = 12
PLAUSIBLE_RUNS = 16_000  # arrangements x runs
FEW_RUNS = 300


@dataclass(frozen=True, slots=True)
class Belief:
    """Posterior over arrangements of steps between the measured commits."""

    evidence: Evidence
    levels: Ints  # the measured groups, with both ends, ascending; gap i lies between levels i and i+1
    hypotheses: Hypotheses
    probability: Floats  # per arrangement; sums to 1 - none
    sizes: Floats  # (H, 2) posterior mean sizes
    none: float
    gap_mass: Floats  # P(a step up in the gap)
    gap_size: Floats  # its expected size, given that there is one
    gap_size_sd: Floats
    gap_weight: Floats
    information: Information
    weight: Floats
    scale: float  # of the Student core
    drift: float  # sd of the block offsets, in noise sds
    effect: float
    effect_sd: float

    @property
    def level_of_run(self) -> Ints:
        """Index into `levels` of every run."""
        return np.searchsorted(self.levels, self.evidence.group).astype(np.int64)

    @property
    def run_sd(self) -> float:
        """The sd of a Gaussian run that would tell as much as one of these."""
        return self.scale * math.sqrt((STUDENT_DF + 3.0) / (STUDENT_DF + 1.0))

    def level_means(self) -> Floats:
        """(H, levels) what each arrangement expects, with the good end at 0."""
        return np.concatenate([np.zeros((len(self.probability), 1)), np.cumsum(self._steps(), axis=1)], axis=1)

    def _steps(self) -> Floats:
        return _step_table(self.hypotheses, self.sizes, len(self.levels) - 1)


def believe(problem: BisectProblem, log: Sequence[Observation | Failure]) -> Belief:
    """The posterior of `log`."""
    return believe_evidence(problem, collect(problem, log))


@dataclass(frozen=True, slots=True)
class _Case:
    """A log in the form in which it is fitted."""

    evidence: Evidence
    levels: Ints
    hypotheses: Hypotheses
    prior: Prior
    runs: Runs
    noise: float  # prior variance of the Student core
    build_offset: float  # prior variance of a build's own offset

    def sums(self, weight: Floats, variance: float) -> RunSums:
        """The runs added up by block and level."""
        return RunSums.of(
            weight=weight,
            log_s=self.runs.log_s,
            level=self.runs.level,
            block=self.runs.block,
            levels=len(self.levels),
            variance=variance,
        )


@dataclass(frozen=True, slots=True)
class _Fit:
    """What a fit says: arrangements with their shares ("none" last), sizes, run weights and noise."""

    hypotheses: Hypotheses
    share: Floats
    sizes: Floats
    size_variances: Floats
    information: Information
    weight: Floats
    variance: float
    drift: float


def believe_evidence(problem: BisectProblem, evidence: Evidence) -> Belief:
    """Rough weights with free offsets first, then the drift's size, then a robust fit of what is plausible."""
    levels = np.unique(np.concatenate([evidence.group, [0, evidence.groups.count - 1]])).astype(np.int64)
    hypotheses = arrangements(len(levels) - 1)
    centre = evidence.log_s.mean() if len(evidence.log_s) else 0.0
    level = np.searchsorted(levels, evidence.group).astype(np.int64)
    case = _Case(
        evidence=evidence,
        levels=levels,
        hypotheses=hypotheses,
        prior=prior_of(problem, hypotheses, evidence.groups.weight, levels),
        runs=Runs(evidence.log_s - centre, level, evidence.block),
        noise=(CORE_SHARE * problem.noise_sd) ** 2,
        build_offset=problem.build_offset_sd**2,
    )
    return _belief(case, _prior_fit(case) if not len(evidence.log_s) else _fit(case))


def _prior_fit(case: _Case) -> _Fit:
    """Before the first run."""
    count = len(case.levels)
    return _Fit(
        hypotheses=case.hypotheses,
        share=np.exp(case.prior.log_prior),
        sizes=case.prior.means,
        size_variances=case.prior.variances,
        information=Information(np.zeros((count, count)), np.zeros(count)),
        weight=np.zeros(0),
        variance=case.noise,
        drift=SIZES[-1],
    )


def _fit(case: _Case) -> _Fit:
    weight, variance = _rough_weights(case)
    info, drift, share, sizes = _drift(case, weight, variance)
    keep = _plausible(case.hypotheses, share, len(weight))
    kept = case.hypotheses.of(keep)
    robust = fit(
        case.runs,
        kept,
        case.prior.of(keep),
        effects_of(case.runs, drift, case.build_offset / variance),
        sizes=sizes[keep],
        variance=variance,
        noise_prior=(case.noise, NOISE_PRIOR_RUNS),
    )
    share = np.exp(robust.log_joint - robust.log_joint.max())
    return _Fit(
        hypotheses=kept,
        share=share / share.sum(),
        sizes=robust.sizes,
        size_variances=robust.size_variances,
        information=info,
        weight=robust.weight,
        variance=robust.variance,
        drift=drift.size,
    )


def _plausible(hypotheses: Hypotheses, share: Floats, runs: int) -> Ints:
    """Which arrangements get their own fit: fewer when there are many runs, as no single run decides then."""
    order = np.argsort(-share)[: max(LEAST_PLAUSIBLE, min(PLAUSIBLE, PLAUSIBLE_RUNS // max(runs, 1)))]
    if runs > FEW_RUNS:
        return np.sort(order[share[order] > 1e-6 * share[order[0]]])
    return np.unique(np.concatenate([np.arange(hypotheses.singles), order]))


def _rough_weights(case: _Case) -> tuple[Floats, float]:
    """Run weights and noise from a few rounds about the mean of all arrangements, with free block offsets."""
    runs, count = case.runs, len(case.levels)
    variance, weight = case.noise, np.ones(len(case.runs.log_s))
    for _ in range(ROUNDS):
        sums = case.sums(weight, variance)
        raw = sums.within_blocks()
        share, sizes, _ = _share(with_build_offsets(raw, case.build_offset), case.hypotheses, case.prior)
        table = np.cumsum(_step_table(case.hypotheses, sizes, count - 1), axis=1)
        table = np.concatenate([np.zeros((len(table), 1)), table], axis=1)
        mean = share[:-1] @ table
        spread = np.maximum(share[:-1] @ table**2 - mean**2, 0.0)
        if case.build_offset > 0:
            inverse = np.linalg.inv(raw.matrix + np.eye(count) / case.build_offset)
            mean = mean + inverse @ (raw.vector - raw.matrix @ mean)
        residual = runs.log_s - mean[runs.level]
        blocks = len(sums.mass)
        offset = np.bincount(runs.block, weight * residual, blocks) / np.bincount(runs.block, weight, blocks)
        square = (residual - offset[runs.block]) ** 2 + UNSURE_SHARE * spread[runs.level]
        freedom = NOISE_PRIOR_RUNS + max(len(weight) - blocks, 0)
        variance = (NOISE_PRIOR_RUNS * case.noise + float(weight @ square)) / freedom
        weight = (STUDENT_DF + 1.0) / (STUDENT_DF + square / variance)
    return weight, variance


def _drift(case: _Case, weight: Floats, variance: float) -> tuple[Information, Offsets, Floats, Floats]:
    """The drift size that explains the runs best, with the belief and sizes under it."""
    sums = case.sums(weight, variance)
    found = []
    for size, size_prior in zip(SIZES, SIZE_PRIOR, strict=True):
        drift = offsets(case.evidence, size)
        raw, log_evidence = sums.with_offsets(drift)
        info = with_build_offsets(raw, case.build_offset)
        share, sizes, log_total = _share(info, case.hypotheses, case.prior)
        found.append((log_evidence + log_total + math.log(size_prior), info, drift, share[:-1], sizes))
    return max(found, key=lambda f: f[0])[1:]


def _share(info: Information, hypotheses: Hypotheses, prior: Prior) -> tuple[Floats, Floats, float]:
    """Posterior of the arrangements ("none" last), their sizes, and the log of the total."""
    log_ml, sizes, _ = evidence_of_steps(info, hypotheses, means=prior.means, variances=prior.variances)
    joint = np.append(log_ml, 0.0) + prior.log_prior
    top = float(joint.max())
    share = np.exp(joint - top)
    total = float(share.sum())
    return share / total, sizes, top + math.log(total)


def _belief(case: _Case, found: _Fit) -> Belief:
    probability, none = found.share[:-1], float(found.share[-1])
    gaps = len(case.levels) - 1
    sizes = (found.hypotheses, probability, found.sizes, found.size_variances)
    gap_mass, gap_size, gap_size_sd = _gap_steps(*sizes, gaps)
    effect, effect_sd = _net_effect(*sizes)
    return Belief(
        evidence=case.evidence,
        levels=case.levels,
        hypotheses=found.hypotheses,
        probability=probability,
        sizes=found.sizes,
        none=none,
        gap_mass=gap_mass,
        gap_size=gap_size,
        gap_size_sd=gap_size_sd,
        gap_weight=np.diff(np.cumsum(case.evidence.groups.weight)[case.levels]),
        information=found.information,
        weight=found.weight,
        scale=math.sqrt(found.variance),
        drift=found.drift,
        effect=effect,
        effect_sd=effect_sd,
    )


def _step_table(hypotheses: Hypotheses, sizes: Floats, gaps: int) -> Floats:
    """(H, gaps) expected step of each arrangement in each gap."""
    table = np.zeros((len(sizes), gaps))
    rows = np.arange(len(sizes))
    np.add.at(table, (rows, hypotheses.first), sizes[:, 0])
    two = hypotheses.second >= 0
    np.add.at(table, (rows[two], hypotheses.second[two]), sizes[two, 1])
    back = hypotheses.closes >= 0
    np.add.at(table, (rows[back], hypotheses.closes[back]), -sizes[back, 0])
    return table


def _gap_steps(
    hypotheses: Hypotheses, probability: Floats, sizes: Floats, variances: Floats, gaps: int
) -> tuple[Floats, Floats, Floats]:
    """P(step up), its mean and sd, per gap."""
    two = hypotheses.second >= 0
    gap = np.concatenate([hypotheses.first, hypotheses.second[two]])
    share = np.concatenate([probability, probability[two]])
    size = np.concatenate([sizes[:, 0], sizes[two, 1]])
    variance = np.concatenate([variances[:, 0], variances[two, 1]])
    share = share * (size > 0)
    mass = np.bincount(gap, share, gaps)
    safe = np.maximum(mass, 1e-300)
    mean = np.bincount(gap, share * size, gaps) / safe
    second = np.bincount(gap, share * (size**2 + variance), gaps) / safe
    return np.minimum(mass, 1.0), mean, np.sqrt(np.maximum(second - mean**2, 0.0))


def _net_effect(hypotheses: Hypotheses, probability: Floats, sizes: Floats, variances: Floats) -> tuple[float, float]:
    """Expected difference of the ends, and its sd."""
    single, back = hypotheses.second < 0, hypotheses.closes >= 0
    net = np.where(single, sizes[:, 0], np.where(back, sizes[:, 1], sizes.sum(axis=1)))
    spread = np.where(single, variances[:, 0], np.where(back, variances[:, 1], variances.sum(axis=1)))
    mean = float(probability @ net)
    second = float(probability @ (net**2 + spread))
    return mean, math.sqrt(max(second - mean**2, 0.0))
