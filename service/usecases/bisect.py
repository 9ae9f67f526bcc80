"""Bisection: from a confirmed range to the commit, one stored step after the other.

The engine (`service.stats.bisect`) is a pure function of the problem and the log; the log is whatever the runs of this
bisection have measured. So a restart at any point recomputes the same belief and asks for the same next probe:

1. `start` stores the bisection; the interleaved run that confirmed the change is its first batch.
2. `advance` rebuilds the log, asks the engine, and stores the next probe with its run, or the outcome.
3. `after_report` calls `advance` when the run of a probe ends, well or badly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise

from sqlalchemy.orm import Session

from service.contract import RunReason
from service.domain.states import BisectionState, BisectionVerdict
from service.stats import bisect as engine
from service.store import bisections, regressions
from service.store.tables import Bisection, BisectionProbe, ChangePoint, GitCommit, Regression, Run, Series
from service.usecases import attribute
from service.usecases.aftermath import Aftermath
from service.usecases.bisect_log import BisectionLog, read_log
from service.usecases.dispatch import order_run

BUDGET_S = 900.0
PROBE_PRIORITY = 10
MAX_WORKLOADS = 6
MIN_PROCESSES = 3
MAX_PROCESSES = 8
EFFECT_Z = 2.58  # the change points' intervals are 99 %


def start(
    session: Session,
    *,
    regression: Regression,
    pool: str,
    evidence: Sequence[Run],
    now: datetime,
    ends: tuple[int, int] | None = None,
    budget_s: float = BUDGET_S,
) -> Aftermath:
    """Store a bisection of the regression's range, with runs that already exist as its first batches; advance it.

    `ends` are the commit ids of another range's good and bad end.
    """
    good_id, bad_id = ends or (regression.good_commit_id, regression.bad_commit_id)
    good, bad = session.get_one(GitCommit, good_id), session.get_one(GitCommit, bad_id)
    if good.position is None or bad.position is None:
        return Aftermath()
    commits = bisections.range_commits(
        session, repository_id=regression.repository_id, good_position=good.position, bad_position=bad.position
    )
    lead = regressions.changes_in(session, regression_id=regression.id)[0]
    bisection = Bisection(
        regression_id=regression.id,
        generation=bisections.next_generation(session, regression_id=regression.id),
        state=BisectionState.RUNNING,
        pool=pool,
        series_id=lead.series_id,
        commit_shas=[commit.sha for commit in commits],
        problem={
            "alarm_effect": math.log1p(lead.effect),
            "alarm_effect_se": _log_se(lead),
            "same_as_parent": _unchanged(commits),
            "before_s": lead.before_s,
            "after_s": lead.after_s,
        },
        budget_s=budget_s,
    )
    session.add(bisection)
    session.flush()
    position_of = {commit.sha: position for position, commit in enumerate(commits)}
    position_of_id = {commit.id: position for position, commit in enumerate(commits)}
    for seq, run in enumerate(evidence):
        partners = [position_of[sha] for sha in run.partner_shas if sha in position_of]
        position = position_of_id.get(run.commit_id, len(commits) - 1)
        session.add(
            BisectionProbe(
                bisection_id=bisection.id,
                seq=seq,
                run_id=run.id,
                position=position,
                partners=partners,
                measure_order=[*partners, position],
                phase=engine.Phase.ENDS if seq == 0 else engine.Phase.EARLIER,
                finished_at=now,
            )
        )
    session.flush()
    return advance(session, bisection_id=bisection.id, now=now)


def after_report(session: Session, *, run_id: int, now: datetime) -> Aftermath:
    """Advance the bisection whose probe this run was; nothing for any other run."""
    run = session.get_one(Run, run_id)
    if run.reason != RunReason.BISECTION:
        return Aftermath()
    regressions.lock_repository(session, repository_id=run.repository_id)
    aftermath = Aftermath()
    for bisection_id in bisections.bisections_of_run(session, run_id=run_id):
        aftermath.add(advance(session, bisection_id=bisection_id, now=now))
    return aftermath


def advance(session: Session, *, bisection_id: int, now: datetime) -> Aftermath:
    """Ask the engine what the log says and store the answer. Calling it twice changes nothing."""
    bisection = session.get_one(Bisection, bisection_id, with_for_update=True)
    if bisection.state != BisectionState.RUNNING:
        return Aftermath()
    regression = session.get_one(Regression, bisection.regression_id)
    log = read_log(session, bisection=bisection, repository_id=regression.repository_id)
    problem = _problem(bisection, log)
    belief = engine.posterior(problem, log.entries(bisection.series_id))
    for probe in log.newly_finished:
        probe.finished_at = now
        probe.posterior = [belief.none, *belief.commits]
    bisection.spent_s = log.device_s
    step = engine.next_step(problem, log.entries(bisection.series_id), log.running)
    if isinstance(step, engine.Wait):
        return Aftermath()
    if isinstance(step, engine.Probe):
        return _order_probe(session, bisection=bisection, regression=regression, step=step, seq=log.next_seq)
    return _finish(session, bisection=bisection, regression=regression, outcome=step, log=log, now=now)


def rerun(session: Session, *, regression_id: int, now: datetime, budget_s: float | None = None) -> Aftermath:
    """Search again with the same range, shapes and pool; earlier measurements of the range count."""
    last = regressions.running_bisection(session, regression_id=regression_id)
    if last is None:
        raise LookupError(f"regression {regression_id} has no bisection to repeat")
    if last.state == BisectionState.RUNNING:
        return advance(session, bisection_id=last.id, now=now)
    evidence = [item.run for item in bisections.probes_of(session, bisection_id=last.id)]
    regression = session.get_one(Regression, regression_id)
    ids = bisections.commit_ids(session, repository_id=regression.repository_id, shas=last.commit_shas)
    ends = (ids[last.commit_shas[0]], ids[last.commit_shas[-1]])  # the search may have narrowed the regression since
    return start(
        session,
        regression=regression,
        pool=last.pool,
        evidence=evidence,
        now=now,
        ends=ends,
        budget_s=budget_s or last.budget_s,
    )


def _log_se(change: ChangePoint) -> float:
    width = math.log1p(change.effect_high) - math.log1p(change.effect_low)
    return max(width / 2 / EFFECT_Z, 0.002)


def _unchanged(commits: Sequence[GitCommit]) -> list[bool]:
    """Say per candidate whether its suite tree equals its predecessor's: then it cannot be the culprit."""
    return [
        after.suite_tree is not None and after.suite_tree == before.suite_tree for before, after in pairwise(commits)
    ]


def _problem(bisection: Bisection, log: BisectionLog) -> engine.BisectProblem:
    same = bisection.problem["same_as_parent"]
    shas = bisection.commit_shas
    return engine.BisectProblem(
        candidates=tuple(
            engine.Candidate(
                position=position,
                sha=sha,
                cost_build_s=log.build_cost_s,
                built=position in log.measured_positions,
                same_as_parent=same[position - 1] or log.same_as_parent(bisection.series_id, position),
            )
            for position, sha in enumerate(shas)
            if position > 0
        ),
        alarm_effect=bisection.problem["alarm_effect"],
        alarm_effect_se=bisection.problem["alarm_effect_se"],
        noise_sd=log.noise_sd(bisection.series_id),
        environment_changed=False,
        budget_s=bisection.budget_s,
        measure_cost_s=log.measure_cost_s,
        before_level=math.log(bisection.problem["before_s"]),
        after_level=math.log(bisection.problem["after_s"]),
    )


def _order_probe(
    session: Session, *, bisection: Bisection, regression: Regression, step: engine.Probe, seq: int
) -> Aftermath:
    """Store the probe and its run in one transaction; the bell is rung after the commit."""
    shas = bisection.commit_shas
    ids = bisections.commit_ids(session, repository_id=regression.repository_id, shas=[shas[step.position]])
    processes = max(step.order.count(position) for position in set(step.order))
    run = order_run(
        session,
        repository_id=regression.repository_id,
        commit_id=ids[shas[step.position]],
        pool=bisection.pool,
        reason=RunReason.BISECTION,
        priority=PROBE_PRIORITY,
        dedupe_key=f"bisection:{bisection.id}:{seq}",
        partner_shas=tuple(shas[position] for position in step.partners),
        workload_keys=_workloads(session, regression=regression, lead_series_id=bisection.series_id),
        protocol={"processes": min(max(processes, MIN_PROCESSES), MAX_PROCESSES)},
    )
    session.add(
        BisectionProbe(
            bisection_id=bisection.id,
            seq=seq,
            run_id=run.id,
            position=step.position,
            partners=list(step.partners),
            measure_order=list(step.order),
            phase=step.phase,
        )
    )
    return Aftermath(runs=[(bisection.pool, run.id)])


def _workloads(session: Session, *, regression: Regression, lead_series_id: int) -> tuple[str, ...]:
    """The leading series' workload and the next clearest, so that a second culprit in the range shows itself."""
    changes = regressions.changes_in(session, regression_id=regression.id)
    series_ids = [lead_series_id, *(c.series_id for c in changes if c.series_id != lead_series_id)]
    keys = regressions.workload_keys(session, series_ids=series_ids)
    return tuple(dict.fromkeys(keys[series_id] for series_id in series_ids))[:MAX_WORKLOADS]


def _finish(
    session: Session,
    *,
    bisection: Bisection,
    regression: Regression,
    outcome: engine.Outcome,
    log: BisectionLog,
    now: datetime,
) -> Aftermath:
    bisection.state = BisectionState.DONE
    bisection.verdict = BisectionVerdict(outcome.verdict)
    bisection.finished_at = now
    bisection.outcome = {
        "positions": list(outcome.positions),
        "probability": outcome.probability,
        "effect": math.expm1(outcome.effect),
        "effect_low": math.expm1(outcome.effect_low),
        "effect_high": math.expm1(outcome.effect_high),
        "reason": outcome.reason,
        "posterior": list(outcome.posterior),
        "measurements": outcome.measurements,
        "builds": outcome.builds,
        "needed": outcome.needed,
        "blames": [asdict(blame) for blame in outcome.blames],
    }
    series = session.get_one(Series, bisection.series_id)
    return attribute.conclude(
        session, bisection=bisection, regression=regression, outcome=outcome, log=log, better=series.direction, now=now
    )
