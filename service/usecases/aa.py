"""Standing A/A: one comparison in twenty is followed by one of a commit with itself, where there is nothing to find.

The runner measures one workload of the comparison twice over, interleaved as ever, and the verdict is the one that
confirms changes; what it alarms at is the false-alarm rate that people are shown. Which comparisons are drawn depends
on their ids alone. One workload, not all: the unit of the rate is the verdict, and it costs the least device time.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.contract import RunReason
from service.domain import health
from service.domain.states import RunState
from service.store import health as store
from service.store import points
from service.store.tables import Run
from service.usecases import standing
from service.usecases.aftermath import Aftermath
from service.usecases.dispatch import order_run
from service.usecases.effects import effect_of_twins
from service.usecases.policy import DetectionPolicy


def order_after(session: Session, *, run: Run) -> Aftermath:
    """Follow a finished comparison with its A/A, if it is drawn; asking twice orders one."""
    if not run.partner_shas or run.state != RunState.REPORTED or not health.is_standing_aa(run.id):
        return Aftermath()
    measured = store.measured_workloads(session, run_id=run.id)
    if not measured:
        return Aftermath()
    commit_id, workload_key = measured[int(health.draw(f"aa-workload:{run.id}") * len(measured))]
    ordered = order_run(
        session,
        repository_id=run.repository_id,
        commit_id=commit_id,
        pool=run.pool,
        reason=RunReason.AA,
        priority=standing.PROOF_PRIORITY,
        dedupe_key=f"aa:{run.id}",
        workload_keys=(workload_key,),
        protocol=run.protocol,
    )
    return Aftermath(runs=[(ordered.pool, ordered.id)])


def judge_run(session: Session, *, run: Run, now: datetime, policy: DetectionPolicy) -> Aftermath:
    """Keep what the verdict says of a commit against itself, and let it tell on the runner's standing."""
    runner = store.lock_runner(session, runner_id=run.runner_id) if run.runner_id is not None else None
    if runner is None:
        return Aftermath()
    for measurement in points.raw_measurements(session, run_ids=[run.id]):
        found = effect_of_twins(measurement, confidence=policy.of(measurement.workload_key).confidence)
        if found is None:
            continue
        floor = policy.of(measurement.workload_key).min_effect
        store.insert_aa(
            session,
            values={
                "runner_id": runner.id,
                "run_id": run.id,
                "family": store.family_of(session, series_id=measurement.series_id),
                "workload_key": measurement.workload_key,
                "effect": found.effect,
                "effect_low": found.low,
                "effect_high": found.high,
                "alarmed": found.excludes_zero and abs(found.effect) >= floor,
                "judged_at": now,
            },
        )
    return standing.judge(session, runner=runner, now=now)
