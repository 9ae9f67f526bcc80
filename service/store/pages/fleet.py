"""The fleet: runners, and what waits in each pool; and the figures of the health page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Function, Select, func, literal, or_, select, true
from sqlalchemy.orm import Session

from service.domain.health import ROLLING_COMPARISONS, AlarmRate, alarm_rate
from service.domain.states import BisectionState, NotificationState, RunState
from service.store.pages.snapshot import fetch, fetch_one
from service.store.tables import AaComparison, Bisection, JobHealth, Notification, Run, Runner, WebhookDelivery

JOBS_SHOWN = 60


@dataclass(frozen=True, slots=True)
class RunnerRow:
    """A device host, what it is doing, and its last finished run."""

    runner_id: int
    name: str
    pool: str
    device: str
    comparable_key: str
    facts: dict[str, Any]
    heartbeat_at: datetime | None
    standing: str
    standing_since: datetime | None
    standing_reason: str | None
    standing_by: str | None
    created_at: datetime
    current_run_id: int | None
    current_stage: str | None
    done: int | None
    total: int | None
    last_run_id: int | None
    last_finished_at: datetime | None
    canaries_s: list[float]  # of its newest jobs, newest first
    canary_verdicts: list[str]
    aa_alarmed: list[bool]  # of its last A/A comparisons

    @property
    def aa(self) -> AlarmRate | None:
        """The share of A/A comparisons that alarmed, with its interval; None before the first."""
        return alarm_rate(self.aa_alarmed)


def runner_rows(session: Session) -> tuple[RunnerRow, ...]:
    """All runners by pool and name."""
    current = (
        select(Run.id, Run.stage, Run.done, Run.total)
        .where(
            Run.runner_id == Runner.id,
            Run.state.in_([RunState.LEASED.value, RunState.MEASURING.value]),
        )
        .order_by(Run.id.desc())
        .limit(1)
        .lateral("current_run")
    )
    last = (
        select(Run.id, Run.finished_at)
        .where(Run.runner_id == Runner.id, Run.finished_at.is_not(None))
        .order_by(Run.id.desc())
        .limit(1)
        .lateral("last_run")
    )
    jobs = (
        select(JobHealth.compute_canary_s)
        .where(JobHealth.runner_id == Runner.id, JobHealth.compute_canary_s.is_not(None))
        .order_by(JobHealth.id.desc())
        .limit(JOBS_SHOWN)
    )
    compared = (
        select(AaComparison.alarmed)
        .where(
            AaComparison.runner_id == Runner.id,
            or_(Runner.judged_from.is_(None), AaComparison.judged_at > Runner.judged_from),
        )
        .order_by(AaComparison.id.desc())
        .limit(ROLLING_COMPARISONS)
    )
    statement = (
        select(
            Runner.id.label("runner_id"),
            Runner.name,
            Runner.pool,
            Runner.device,
            Runner.comparable_key,
            Runner.facts,
            Runner.heartbeat_at,
            Runner.standing,
            Runner.standing_since,
            Runner.standing_reason,
            Runner.standing_by,
            Runner.created_at,
            current.c.id.label("current_run_id"),
            current.c.stage.label("current_stage"),
            current.c.done,
            current.c.total,
            last.c.id.label("last_run_id"),
            last.c.finished_at.label("last_finished_at"),
            _list_of(jobs).label("canaries_s"),
            _list_of(jobs.with_only_columns(JobHealth.verdict)).label("canary_verdicts"),
            _list_of(compared).label("aa_alarmed"),
        )
        .select_from(Runner)
        .join(current, true(), isouter=True)
        .join(last, true(), isouter=True)
        .order_by(Runner.pool, Runner.name)
    )
    return fetch(session, statement, RunnerRow)


@dataclass(frozen=True, slots=True)
class AaControl:
    """How often the runner behind a verdict alarms where there is nothing to find, and its last A/A of a family."""

    runner: str
    standing: str
    rate: AlarmRate | None
    last_run_id: int | None
    last_effect: float | None
    last_alarmed: bool | None


def aa_control(session: Session, *, run_id: int, family: str) -> AaControl | None:
    """The A/A control of the runner that measured a run; None where nobody is known to have measured it."""
    runner_id = session.scalar(select(Run.runner_id).where(Run.id == run_id))
    row = next((row for row in runner_rows(session) if row.runner_id == runner_id), None)
    if row is None:
        return None
    last = session.scalars(
        select(AaComparison)
        .where(AaComparison.runner_id == row.runner_id, AaComparison.family == family)
        .order_by(AaComparison.id.desc())
        .limit(1)
    ).first()
    return AaControl(
        runner=row.name,
        standing=row.standing,
        rate=row.aa,
        last_run_id=last.run_id if last else None,
        last_effect=last.effect if last else None,
        last_alarmed=last.alarmed if last else None,
    )


def _list_of(rows: Select[Any]) -> Function[Any]:
    """The rows of one column, for each runner, as one array."""
    return func.array(rows.correlate(Runner).scalar_subquery())


@dataclass(frozen=True, slots=True)
class JobRow:
    """What one job showed of its runner."""

    id: int
    run_id: int
    attempt: int
    run_reason: str
    reported_at: datetime
    compute_canary_s: float | None
    memory_canary_s: float | None
    contended: bool
    ecc_uncorrected: int
    xid_errors: int
    pcie_width: int | None
    slowest_nvml_call_s: float
    verdict: str
    finding: str | None


def job_rows(session: Session, *, runner_id: int, before_id: int | None, limit: int) -> tuple[JobRow, ...]:
    """A runner's jobs, newest first: its canary history."""
    columns = [getattr(JobHealth, name) for name in JobRow.__dataclass_fields__ if name != "run_reason"]
    statement = (
        select(*columns, Run.reason.label("run_reason"))
        .join(Run, Run.id == JobHealth.run_id)
        .where(JobHealth.runner_id == runner_id)
        .order_by(JobHealth.id.desc())
        .limit(limit)
    )
    if before_id is not None:
        statement = statement.where(JobHealth.id < before_id)
    return fetch(session, statement, JobRow)


@dataclass(frozen=True, slots=True)
class PoolRow:
    """How much waits in a pool, and since when."""

    pool: str
    queued: int
    oldest_queued_at: datetime | None


def queue_by_pool(session: Session) -> tuple[PoolRow, ...]:
    """The queued runs by pool."""
    statement = (
        select(
            Run.pool,
            func.count(literal(1)).label("queued"),
            func.min(Run.created_at).label("oldest_queued_at"),
        )
        .where(Run.state == RunState.QUEUED.value)
        .group_by(Run.pool)
        .order_by(Run.pool)
    )
    return fetch(session, statement, PoolRow)


@dataclass(frozen=True, slots=True)
class HealthRow:
    """What can go quietly wrong, counted at one moment."""

    queued: int
    running: int
    expired_leases: int
    unsent: int
    failed_messages: int
    unhandled_deliveries: int
    running_bisections: int
    last_delivery_at: datetime | None
    last_report_at: datetime | None


def health_row(session: Session, now: datetime) -> HealthRow:
    """Count what waits, what is late and what has failed."""
    held = Run.state.in_([RunState.LEASED.value, RunState.MEASURING.value])
    count = func.count(literal(1))
    statement = select(
        select(count).where(Run.state == RunState.QUEUED.value).scalar_subquery().label("queued"),
        select(count).select_from(Run).where(held).scalar_subquery().label("running"),
        select(count).where(held, Run.lease_until < now).scalar_subquery().label("expired_leases"),
        select(count)
        .where(Notification.state.in_([NotificationState.PENDING.value, NotificationState.SENDING.value]))
        .scalar_subquery()
        .label("unsent"),
        select(count)
        .where(Notification.state == NotificationState.FAILED.value)
        .scalar_subquery()
        .label("failed_messages"),
        select(count).where(WebhookDelivery.handled_at.is_(None)).scalar_subquery().label("unhandled_deliveries"),
        select(count)
        .where(Bisection.state == BisectionState.RUNNING.value)
        .scalar_subquery()
        .label("running_bisections"),
        select(func.max(WebhookDelivery.received_at)).scalar_subquery().label("last_delivery_at"),
        select(func.max(Run.finished_at)).scalar_subquery().label("last_report_at"),
    )
    found = fetch_one(session, statement, HealthRow)
    if found is None:
        raise RuntimeError("a select without FROM returns one row")
    return found
