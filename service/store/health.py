"""What jobs showed of their runners: the canary history, the A/A comparisons, and the runner's standing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, select, true
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import InstrumentedAttribute, Session

from service.contract import MeasurementStatus, RunReason
from service.domain import health
from service.domain.health import Finding, Past
from service.domain.states import JobVerdict, RunState, Standing
from service.store.tables import AaComparison, Benchmark, JobHealth, Measurement, Run, Runner, Series, Workload

JOBS_OF_A_PAST = 500  # the newest of 30 days; more would hardly move a median
TIME_METRIC = "time"


def lock_runner(session: Session, *, runner_id: int) -> Runner | None:
    """Return the runner, locked and fresh: whatever changes its standing passes here one by one.

    A report locks the runner before its run, as a claim and a heartbeat do.
    """
    return session.get(Runner, runner_id, with_for_update=True, populate_existing=True)


def past_of(session: Session, *, runner: Runner, comparable_key: str | None, epoch: int, now: datetime) -> Past:
    """Return the runner's canaries of 30 days under the same conditions, and what its board had shown."""
    since = max(filter(None, (now - health.PAST, runner.judged_from)))
    mine = select(JobHealth).where(JobHealth.runner_id == runner.id)
    rows = session.execute(
        mine.with_only_columns(JobHealth.verdict, JobHealth.compute_canary_s, JobHealth.memory_canary_s)
        .where(
            JobHealth.verdict.in_([JobVerdict.CLEAN, JobVerdict.BAD]),
            JobHealth.reported_at > since,
            JobHealth.comparable_key == comparable_key,
            JobHealth.harness_epoch == epoch,
        )
        .order_by(JobHealth.id.desc())
        .limit(JOBS_OF_A_PAST)
    ).all()[::-1]
    kept = [rows[index] for index in health.without_streaks([JobVerdict(row.verdict) for row in rows])]
    last = session.scalars(mine.order_by(JobHealth.id.desc()).limit(1)).first()
    widest = mine.with_only_columns(func.max(JobHealth.pcie_width)).where(JobHealth.reported_at > since)
    return Past(
        compute_canaries_s=[row.compute_canary_s for row in kept if row.compute_canary_s],
        memory_canaries_s=[row.memory_canary_s for row in kept if row.memory_canary_s],
        ecc_uncorrected=last.ecc_uncorrected if last is not None else 0,
        widest_pcie=session.scalar(widest),
    )


def insert_job(
    session: Session,
    *,
    runner_id: int,
    run: Run,
    comparable_key: str | None,
    epoch: int,
    job: health.JobHealth,
    finding: Finding,
    now: datetime,
) -> bool:
    """Keep what one attempt showed; False if it is there."""
    statement = insert(JobHealth).values(
        runner_id=runner_id,
        run_id=run.id,
        attempt=run.attempt,
        reported_at=now,
        comparable_key=comparable_key,
        harness_epoch=epoch,
        verdict=finding.verdict,
        finding=finding.sentence,
        **asdict(job),
    )
    return session.scalar(statement.on_conflict_do_nothing().returning(JobHealth.id)) is not None


def findings_of(session: Session, *, runner: Runner) -> list[Finding]:
    """Return what the runner's newest judged jobs said, newest last: as many as its standing depends on."""
    rows = session.execute(
        select(JobHealth.verdict, JobHealth.finding)
        .where(
            JobHealth.runner_id == runner.id,
            JobHealth.verdict != JobVerdict.UNJUDGED,
            _since_release(runner, JobHealth.reported_at),
        )
        .order_by(JobHealth.id.desc())
        .limit(health.CLEAN_JOBS_TO_RETURN)
    ).all()
    return [Finding(JobVerdict(verdict), sentence) for verdict, sentence in reversed(rows)]


def alarms_of(session: Session, *, runner: Runner) -> list[bool]:
    """Return whether the runner's last A/A comparisons alarmed, newest last."""
    rows = session.scalars(
        select(AaComparison.alarmed)
        .where(AaComparison.runner_id == runner.id, _since_release(runner, AaComparison.judged_at))
        .order_by(AaComparison.id.desc())
        .limit(health.ROLLING_COMPARISONS)
    ).all()
    return list(reversed(rows))


def _since_release(runner: Runner, moment: InstrumentedAttribute[datetime]) -> ColumnElement[bool]:
    return true() if runner.judged_from is None else moment > runner.judged_from


def insert_aa(session: Session, *, values: dict[str, Any]) -> bool:
    """Keep the outcome of one A/A run; False if it is there."""
    statement = insert(AaComparison).values(**values).on_conflict_do_nothing().returning(AaComparison.id)
    return session.scalar(statement) is not None


def measured_workloads(session: Session, *, run_id: int) -> Sequence[tuple[int, str]]:
    """Return (commit, workload key) of every time that a run measured, vendor controls left out."""
    rows = session.execute(
        select(Measurement.commit_id, Workload.key)
        .join(Series, Series.id == Measurement.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(
            Measurement.run_id == run_id,
            Measurement.status == MeasurementStatus.OK,
            Series.metric == TIME_METRIC,
            Benchmark.control.is_(False),
        )
        .order_by(Measurement.id)
    )
    return [(commit_id, key) for commit_id, key in rows]


def family_of(session: Session, *, series_id: int) -> str:
    """Return the family of a series' benchmark."""
    return session.scalars(
        select(Benchmark.family)
        .join(Workload, Workload.benchmark_id == Benchmark.id)
        .join(Series, Series.workload_id == Workload.id)
        .where(Series.id == series_id)
    ).one()


def untrusted(session: Session) -> Sequence[Runner]:
    """Return the runners whose own jobs have put them where they are, and may bring them back."""
    return session.scalars(
        select(Runner)
        .where(Runner.standing != Standing.TRUSTED, Runner.standing_by.is_(None))
        .order_by(Runner.id)
        .with_for_update(skip_locked=True)
    ).all()


def last_run_of(session: Session, *, runner_id: int, reason: RunReason | None = None) -> Run | None:
    """Return the newest run that a runner had in hand, of one kind or any."""
    wanted = select(Run).where(Run.runner_id == runner_id)
    if reason is not None:
        wanted = wanted.where(Run.reason == reason)
    return session.scalars(wanted.order_by(Run.id.desc()).limit(1)).first()


def proofs_of(session: Session, *, runner: Runner) -> Sequence[Run]:
    """Return the runs by which this runner may prove itself since its standing last changed, oldest first."""
    prefix = proof_key(runner, 0).rsplit(":", 1)[0] + ":"
    return session.scalars(
        select(Run).where(Run.for_runner_id == runner.id, Run.dedupe_key.startswith(prefix)).order_by(Run.id)
    ).all()


def proof_key(runner: Runner, number: int) -> str:
    """Return the dedupe key of a runner's next proof: two that order it at once order one."""
    return f"proof:{runner.id}:{runner.standing_changes}:{number}"


def is_waiting(run: Run) -> bool:
    """Whether a run is still to be measured."""
    return run.state in {RunState.QUEUED, RunState.LEASED, RunState.MEASURING}
