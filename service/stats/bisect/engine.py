"""The decision after each report: ends, then search, then sandwich, then a verdict.

There is no hidden state: `next_step` looks only at the problem, the log and the probes that still run, so a restart
at any point goes on with the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.stats.bisect import reasons
from service.stats.bisect.belief import Belief, believe_evidence
from service.stats.bisect.evidence import Evidence, collect
from service.stats.bisect.plan import ENDS_CLEAR, plan, prove, runs_left
from service.stats.bisect.types import (
    BisectProblem,
    Blame,
    Failure,
    Observation,
    Outcome,
    Outlook,
    Posterior,
    Probe,
    Reason,
    Verdict,
    Wait,
)

NONE_SURE = 0.97
ABSENT_Z = 2.6
ABSENT_SHARE, ABSENT_SHARE_LATE = 0.5, 0.8  # of the alarm
LONG_ENDS = 0.15  # of the budget
SMALL_RATIO = 0.5
Z95 = 1.959964


def posterior(problem: BisectProblem, log: Sequence[Observation | Failure]) -> Posterior:
    """What to show after a probe."""
    evidence = collect(problem, log)
    if evidence.groups.count == 1:
        return _same_code(problem, evidence)
    return _describe(believe_evidence(problem, evidence))


def outlook(problem: BisectProblem) -> Outlook:
    """How much measuring it will probably take, and a warning where the step is too small for that."""
    evidence = collect(problem, [])
    ratio = abs(problem.alarm_effect) / max(problem.noise_sd, 1e-12)
    if evidence.groups.count == 1:
        return Outlook(ratio, 0, 0.0, "")
    runs = reasons.runs_needed(problem, believe_evidence(problem, evidence))
    seconds = runs * problem.measure_cost_s
    warning = ""
    if ratio < SMALL_RATIO:
        warning = f"the step is {ratio:.2f} of the noise: it may take {seconds:.0f} device-seconds and still stay open"
    elif seconds > problem.budget_s:
        warning = f"it takes about {seconds:.0f} device-seconds, the budget is {problem.budget_s:.0f}"
    return Outlook(ratio, runs, seconds, warning)


def next_step(
    problem: BisectProblem, log: Sequence[Observation | Failure], running: Sequence[Probe] = ()
) -> Probe | Wait | Outcome:
    """The next batch to start, or Wait, or the verdict."""
    step = next_steps(problem, log, running, count=1)
    return step[0] if isinstance(step, tuple) else step


def next_steps(
    problem: BisectProblem, log: Sequence[Observation | Failure], running: Sequence[Probe] = (), *, count: int
) -> tuple[Probe, ...] | Wait | Outcome:
    """Up to `count` batches for free workers, from one look at the log; or Wait, or the verdict."""
    evidence = collect(problem, log)
    if evidence.groups.count == 1:
        return _nothing_changed(problem, evidence)
    belief = believe_evidence(problem, evidence)
    early = _early_end(problem, belief)
    if early is not None:
        return early
    proof = prove(problem, belief)
    probes: list[Probe] = []
    while len(probes) < count:
        probe = plan(problem, belief, proof, [*running, *probes])
        if probe is None:
            break
        probes.append(probe)
    if probes:
        return tuple(probes)
    if running:
        return Wait("a running probe decides what is worth measuring")
    return _verdict(problem, belief, proof.confirmed, runs_left(problem, belief, ()))


def _early_end(problem: BisectProblem, belief: Belief) -> Outcome | None:
    """Verdicts that need no search: ends that cannot be measured, a machine that fails, a step that is not there."""
    evidence = belief.evidence
    if evidence.failed & {0, evidence.groups.count - 1}:
        sentence = "an end of the range could not be measured"
        return _outcome(problem, belief, Verdict.INCONCLUSIVE, Reason.ENDS_FAILED, sentence)
    if evidence.stuck:
        sentence = "the machine failed again and again"
        return _outcome(problem, belief, Verdict.INCONCLUSIVE, Reason.INFRASTRUCTURE, sentence)
    if _ends_runs(belief) >= 4 and (belief.none >= NONE_SURE or _step_is_absent(problem, belief)):
        code, sentence = reasons.why_no_change(problem, belief)
        return _outcome(problem, belief, Verdict.NO_CHANGE, code, sentence)
    return None


def _step_is_absent(problem: BisectProblem, belief: Belief) -> bool:
    """Today's ends differ by surely less than half of the alarm, or late by clearly less than it.

    A Bayes factor alone proves "none" very slowly, as the prior of the size reaches down to zero.
    """
    size, sd = reasons.measured_effect(belief)
    spent = belief.evidence.measurements * problem.measure_cost_s
    open_still = spent >= LONG_ENDS * problem.budget_s and belief.none > ENDS_CLEAR
    share = ABSENT_SHARE_LATE if open_still else ABSENT_SHARE
    return size + ABSENT_Z * sd < share * abs(problem.alarm_effect)


def _ends_runs(belief: Belief) -> int:
    last = belief.evidence.groups.count - 1
    return int(np.isin(belief.evidence.group, [0, last]).sum())


def _verdict(problem: BisectProblem, belief: Belief, confirmed: Sequence[int], left: int) -> Outcome:
    if confirmed:
        blames = tuple(sorted((_blame(belief, g) for g in confirmed), key=lambda b: -abs(b.effect)))
        single = len(blames) == 1
        wide = single and len(blames[0].positions) > 1
        verdict = Verdict.RANGE if wide else Verdict.CULPRIT if single else Verdict.CULPRITS
        code = Reason.UNBUILDABLE if any(len(b.positions) > 1 for b in blames) else Reason.CONFIRMED
        return _outcome(problem, belief, verdict, code, reasons.why_blamed(blames, problem), blames=blames)
    code = Reason.BUDGET if left < 2 else Reason.NO_PROBE_LEFT
    sentence = "the budget is used up" if code is Reason.BUDGET else "no probe would tell more"
    return _outcome(problem, belief, Verdict.INCONCLUSIVE, code, sentence)


def _blame(belief: Belief, gap: int) -> Blame:
    groups, sign = belief.evidence.groups, belief.evidence.sign
    low, high = int(belief.levels[gap]), int(belief.levels[gap + 1])
    size, sd = sign * float(belief.gap_size[gap]), float(belief.gap_size_sd[gap])
    return Blame(
        lo=int(groups.last[low]),
        hi=int(groups.first[high]),
        positions=tuple(int(groups.first[g]) for g in range(low + 1, high + 1)),
        probability=float(belief.gap_mass[gap]),
        effect=size,
        effect_low=size - Z95 * sd,
        effect_high=size + Z95 * sd,
    )


def _same_code(problem: BisectProblem, evidence: Evidence) -> Posterior:
    """All commits were merged into the good end: there is nothing to believe."""
    return Posterior(
        commits=(0.0,) * len(problem.candidates),
        none=1.0,
        several=0.0,
        effect=0.0,
        effect_low=0.0,
        effect_high=0.0,
        noise_sd=problem.noise_sd,
        range_lo=0,
        range_hi=len(problem.candidates),
        measurements=evidence.measurements,
        builds=evidence.build_attempts,
        rejected=evidence.rejected,
    )


def _nothing_changed(problem: BisectProblem, evidence: Evidence) -> Outcome:
    shown = _same_code(problem, evidence)
    return Outcome(
        verdict=Verdict.NO_CHANGE,
        positions=(),
        probability=1.0,
        effect=0.0,
        effect_low=0.0,
        effect_high=0.0,
        reason="all commits of the range have the same code",
        posterior=shown.commits,
        measurements=shown.measurements,
        builds=shown.builds,
        needed="",
        reason_code=Reason.IDENTICAL_CODE,
    )


def _outcome(
    problem: BisectProblem,
    belief: Belief,
    verdict: Verdict,
    code: Reason,
    sentence: str,
    *,
    blames: tuple[Blame, ...] = (),
) -> Outcome:
    shown = _describe(belief)
    if blames:
        positions = tuple(p for b in blames for p in b.positions)
        probability = min(b.probability for b in blames)
    elif verdict is Verdict.NO_CHANGE:
        positions, probability = (), belief.none
    else:
        positions = tuple(range(shown.range_lo + 1, shown.range_hi + 1))
        probability = max(shown.commits, default=0.0)
    main = blames[0] if blames else shown
    return Outcome(
        verdict=verdict,
        positions=positions,
        probability=probability,
        effect=main.effect,
        effect_low=main.effect_low,
        effect_high=main.effect_high,
        reason=sentence,
        posterior=shown.commits,
        measurements=shown.measurements,
        builds=shown.builds,
        needed=reasons.what_it_takes(problem, belief) if verdict is Verdict.INCONCLUSIVE else "",
        reason_code=code,
        blames=blames,
    )


def _describe(belief: Belief) -> Posterior:
    groups, sign = belief.evidence.groups, belief.evidence.sign
    mass = np.zeros(len(groups.of_position))
    for gap, (low, high) in enumerate(zip(belief.levels, belief.levels[1:], strict=False)):
        inside = np.arange(low + 1, high + 1)
        weight = groups.weight[inside]
        mass[groups.first[inside]] = belief.gap_mass[gap] * weight / max(float(weight.sum()), 1e-300)
    commits = mass[1:]
    total = float(commits.sum())
    cumulative = np.cumsum(commits) / total if total > 0 else np.linspace(0.0, 1.0, len(commits))
    low = int(np.searchsorted(cumulative, 0.025))
    high = int(np.searchsorted(cumulative, 0.975)) + 1
    effect = sign * belief.effect
    return Posterior(
        commits=tuple(float(m) for m in commits),
        none=float(belief.none),
        several=float(belief.probability[belief.hypotheses.singles :].sum()),
        effect=effect,
        effect_low=effect - Z95 * belief.effect_sd,
        effect_high=effect + Z95 * belief.effect_sd,
        noise_sd=belief.run_sd,
        range_lo=min(low, len(commits)),
        range_hi=min(high, len(commits)),
        measurements=belief.evidence.measurements,
        builds=belief.evidence.build_attempts,
        rejected=belief.evidence.rejected,
    )
