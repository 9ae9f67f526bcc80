"""Runs: ordered once, claimed by compare-and-set, kept alive by a lease, given back when the lease runs out.

Every change of state is one conditional statement or happens under the row's lock, so that two runners, two beats or
a late report can meet at one run and only one of them wins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import case, func, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.orm import Session

from service.contract import FailureKind, FailureStage, RunReason
from service.domain.states import RunState
from service.store.tables import GitCommit, Repository, Run

HELD = (RunState.LEASED, RunState.MEASURING)
FINISHED = (RunState.REPORTED, RunState.FAILED)


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run with all that its order needs."""

    run: Run
    commit: GitCommit
    repository: Repository


def insert_run(session: Session, *, dedupe_key: str, values: Mapping[str, Any]) -> tuple[Run, bool]:
    """Insert a run, or find the one with this key; the second value says whether it is new."""
    statement = (
        insert(Run).values(dedupe_key=dedupe_key, **values).on_conflict_do_nothing(index_elements=["dedupe_key"])
    )
    made = session.scalar(statement.returning(Run.id))
    run = session.scalars(select(Run).where(Run.dedupe_key == dedupe_key)).one()
    return run, made is not None


def claim(
    session: Session,
    *,
    pool: str,
    run_id: int | None,
    runner_id: int,
    reasons: Collection[RunReason],
    lease_token: str,
    now: datetime,
    lease_s: float,
) -> ClaimedRun | None:
    """Take a queued run of `pool` (that one, or the most urgent and oldest); None if there is none to take.

    `reasons` are the kinds that this runner may have; what is for another runner alone is passed over.
    """
    wanted = select(Run.id).where(
        Run.state == RunState.QUEUED,
        Run.pool == pool,
        Run.reason.in_(sorted(reasons)),
        or_(Run.for_runner_id.is_(None), Run.for_runner_id == runner_id),
    )
    if run_id is not None:
        wanted = wanted.where(Run.id == run_id)
    wanted = wanted.order_by(Run.priority.desc(), Run.id).limit(1).with_for_update(skip_locked=True)
    taken = session.scalar(
        update(Run)
        .where(Run.id == wanted.scalar_subquery(), Run.state == RunState.QUEUED)
        .values(
            state=RunState.LEASED,
            attempt=Run.attempt + 1,
            runner_id=runner_id,
            lease_token=lease_token,
            lease_until=now + timedelta(seconds=lease_s),
            started_at=now,
            stage=None,
            done=None,
            total=None,
        )
        .returning(Run.id)
        .execution_options(synchronize_session=False)
    )
    if taken is None:
        return None
    run = session.get_one(Run, taken, populate_existing=True)
    return ClaimedRun(
        run=run,
        commit=session.get_one(GitCommit, run.commit_id),
        repository=session.get_one(Repository, run.repository_id),
    )


def extend_lease(
    session: Session,
    *,
    run_id: int,
    runner_id: int,
    lease_token: str,
    progress: tuple[str, int, int],
    now: datetime,
    lease_s: float,
) -> bool:
    """Renew a lease and note the progress (stage, done, total); False if the runner no longer holds the run.

    A lease that ran out, but that nobody else has taken since, is taken back: the work done so far is not lost.
    """
    stage, done, total = progress
    held = session.scalar(
        update(Run)
        .where(
            Run.id == run_id,
            Run.runner_id == runner_id,
            Run.lease_token == lease_token,
            Run.state.in_([*HELD, RunState.QUEUED]),
        )
        .values(
            state=case((Run.state == RunState.QUEUED, RunState.LEASED.value), else_=RunState.MEASURING.value),
            lease_until=now + timedelta(seconds=lease_s),
            stage=stage,
            done=done,
            total=total,
        )
        .returning(Run.id)
        .execution_options(synchronize_session=False)
    )
    return held is not None


def lock_expired(session: Session, *, now: datetime, limit: int = 100) -> Sequence[Run]:
    """Runs whose lease ran out, locked; those that somebody else is dealing with are passed over."""
    return session.scalars(
        select(Run)
        .where(Run.state.in_(HELD), Run.lease_until < now)
        .order_by(Run.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()


def give_back(
    run: Run, *, now: datetime, max_attempts: int, kind: FailureKind, stage: FailureStage, reason: str
) -> None:
    """Re-queue a run that its runner lost, or fail it after its last attempt.

    Call it under the row's lock. Lease token and runner stay in the row, so that a late report is recognised.
    """
    run.lease_until = None
    if run.attempt >= max_attempts:
        run.state = RunState.FAILED
        run.finished_at = now
        run.failure_stage, run.failure_kind = stage, kind
        run.failure_reason = f"{reason} (attempt {run.attempt} of {max_attempts}, the last)"
    else:
        run.state = RunState.QUEUED
        run.failure_reason = f"{reason} (attempt {run.attempt} of {max_attempts})"


def lock(session: Session, *, run_id: int) -> Run | None:
    """The run, locked and fresh, or None if there is no such run."""
    return session.scalar(
        select(Run).where(Run.id == run_id).with_for_update().execution_options(populate_existing=True)
    )


def first_queued_per_pool(session: Session, *, queued_before: datetime) -> Sequence[tuple[str, int]]:
    """(pool, run) of the most urgent run of each pool that waits: one bell per pool is enough."""
    rows = session.execute(
        select(Run.pool, Run.id)
        .where(Run.state == RunState.QUEUED, Run.created_at < queued_before)
        .order_by(Run.pool, Run.priority.desc(), Run.id)
        .ext(distinct_on(Run.pool))
    )
    return list(rows)


def unanalysed(session: Session, *, finished_before: datetime, limit: int = 100) -> Sequence[int]:
    """Finished runs that detection has not looked at, oldest first."""
    return session.scalars(
        select(Run.id)
        .where(Run.state.in_(FINISHED), Run.analysed_at.is_(None), Run.finished_at < finished_before)
        .order_by(Run.finished_at, Run.id)
        .limit(limit)
    ).all()


def is_unanalysed(session: Session, *, run_id: int) -> bool:
    """Whether a run is over and detection has not looked at it."""
    found = session.scalar(select(Run.id).where(Run.id == run_id, Run.state.in_(FINISHED), Run.analysed_at.is_(None)))
    return found is not None


def mark_analysed(session: Session, *, run_id: int, now: datetime) -> None:
    """Note that detection and bisection have looked at a run."""
    session.execute(
        update(Run).where(Run.id == run_id).values(analysed_at=now).execution_options(synchronize_session=False)
    )


def count_by_state(session: Session, *, pool: str) -> dict[str, int]:
    """How many runs of a pool are in each state."""
    rows = session.execute(select(Run.state, func.count()).where(Run.pool == pool).group_by(Run.state))
    return dict(rows.all())
