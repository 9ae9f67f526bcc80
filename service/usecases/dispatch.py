"""Order runs, hand them to runners, keep their leases, and take them back when a runner is lost.

The queue's message is a doorbell; all decisions are made here, on the run's row.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from service.contract import (
    CONTRACT_VERSION,
    FailureKind,
    FailureStage,
    Heartbeat,
    ProtocolParams,
    RunOrder,
    RunReason,
)
from service.domain import health
from service.domain.states import RunState, Standing, check_run_move
from service.store import audit, commits, runners, runs
from service.store.runs import ClaimedRun
from service.store.tables import Run, Runner

NIGHTLY_TIER = "nightly"
CORE_TIER = "core"
_PROTOCOL_FIELDS = frozenset(field.name for field in fields(ProtocolParams))


class DispatchError(Exception):
    """A run cannot be ordered as asked."""


@dataclass(frozen=True, slots=True)
class Expired:
    """What became of the leases that ran out."""

    requeued: tuple[tuple[str, int], ...]  # (pool, run)
    failed: tuple[int, ...]


def order_run(
    session: Session,
    *,
    repository_id: int,
    commit_id: int,
    pool: str,
    reason: RunReason,
    dedupe_key: str,
    priority: int = 0,
    partner_shas: Sequence[str] = (),
    workload_keys: Sequence[str] = (),
    protocol: ProtocolParams | Mapping[str, Any] | None = None,
    for_runner_id: int | None = None,
) -> Run:
    """Order a run once: the same `dedupe_key` gives the run that is there. Commit, then ring.

    `protocol` may name only the fields that differ from the repository's. Partners must be commits that intake has
    seen, because their measurements need rows to point at. `for_runner_id`: the only runner that may have it.
    """
    if partner_shas:
        known = commits.ids_by_sha(session, repository_id=repository_id, shas=partner_shas)
        unknown = sorted(set(partner_shas) - known.keys())
        if unknown:
            raise DispatchError(f"commit {unknown[0]} is not known in this repository")
    given = asdict(protocol) if isinstance(protocol, ProtocolParams) else dict(protocol or {})
    foreign = given.keys() - _PROTOCOL_FIELDS
    if foreign:
        raise DispatchError(f"the protocol has no field {min(foreign)!r}")
    run, _ = runs.insert_run(
        session,
        dedupe_key=dedupe_key,
        values={
            "repository_id": repository_id,
            "commit_id": commit_id,
            "pool": pool,
            "reason": reason,
            "priority": priority,
            "partner_shas": list(partner_shas),
            "workload_keys": list(workload_keys),
            "protocol": given,
            "for_runner_id": for_runner_id,
        },
    )
    return run


def skip_run(
    session: Session, *, repository_id: int, commit_id: int, pool: str, reason: RunReason, dedupe_key: str, why: str
) -> Run:
    """Write down that a commit was looked at and need not be measured."""
    run, _ = runs.insert_run(
        session,
        dedupe_key=dedupe_key,
        values={
            "repository_id": repository_id,
            "commit_id": commit_id,
            "pool": pool,
            "reason": reason,
            "state": RunState.SKIPPED,
            "failure_reason": why,
        },
    )
    return run


def claim(session: Session, *, runner: Runner, run_id: int | None, now: datetime, lease_s: float) -> RunOrder | None:
    """Give a runner a queued run of its pool that its standing allows, or None. Of two claims of one run, one gets it.

    A quarantined runner measures canaries only; an advisory one gives no verdicts.
    """
    runners.touch(session, runner_id=runner.id, now=now)
    session.refresh(runner, attribute_names=["standing"])  # under the row's lock: nobody is changing it now
    claimed = runs.claim(
        session,
        pool=runner.pool,
        run_id=run_id,
        runner_id=runner.id,
        reasons=health.reasons_for(Standing(runner.standing)),
        lease_token=secrets.token_urlsafe(24),
        now=now,
        lease_s=lease_s,
    )
    return None if claimed is None else order_of(claimed, lease_s=lease_s)


def order_of(claimed: ClaimedRun, *, lease_s: float) -> RunOrder:
    """What the runner is told."""
    run, repository = claimed.run, claimed.repository
    assert run.lease_token is not None
    reason = RunReason(run.reason)
    return RunOrder(
        contract_version=CONTRACT_VERSION,
        run_id=run.id,
        attempt=run.attempt,
        lease_token=run.lease_token,
        lease_s=lease_s,
        repository=repository.name,
        clone_url=repository.clone_url,
        suite_path=repository.suite_path,
        sha=claimed.commit.sha,
        reason=reason,
        partner_shas=tuple(run.partner_shas),
        workloads=tuple(run.workload_keys),
        tier=NIGHTLY_TIER if reason is RunReason.NIGHTLY else CORE_TIER,
        build_command=repository.build_command,
        watched_paths=tuple(repository.watched_paths),
        time_limit_s=repository.time_limit_s,
        protocol=protocol_of(repository.settings.get("protocol"), run.protocol),
    )


def protocol_of(*layers: Mapping[str, Any] | None) -> ProtocolParams:
    """The protocol: defaults, then each layer's fields; a field that no longer exists is passed over."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {name: value for name, value in (layer or {}).items() if name in _PROTOCOL_FIELDS}
    return ProtocolParams(**merged)


def heartbeat(session: Session, *, runner: Runner, beat: Heartbeat, now: datetime, lease_s: float) -> bool:
    """Extend the lease and note the progress; False tells the runner to stop and drop the run."""
    runners.touch(session, runner_id=runner.id, now=now)
    return runs.extend_lease(
        session,
        run_id=beat.run_id,
        runner_id=runner.id,
        lease_token=beat.lease_token,
        progress=(beat.stage, beat.done, beat.total),
        now=now,
        lease_s=lease_s,
    )


def expire_leases(session: Session, *, now: datetime, max_attempts: int) -> Expired:
    """Re-queue the runs of runners that fell silent; after `max_attempts` attempts fail them with the reason."""
    requeued: list[tuple[str, int]] = []
    failed: list[int] = []
    for run in runs.lock_expired(session, now=now):
        where = f" while at '{run.stage}'" if run.stage else ""
        runs.give_back(
            run,
            now=now,
            max_attempts=max_attempts,
            kind=FailureKind.TRANSIENT,
            stage=FailureStage.LEASE,
            reason=f"the runner fell silent{where}: its lease ran out",
        )
        if run.state == RunState.QUEUED:
            requeued.append((run.pool, run.id))
        else:
            failed.append(run.id)
    session.flush()
    return Expired(requeued=tuple(requeued), failed=tuple(failed))


def abandon(session: Session, *, run_id: int, actor: str, why: str, now: datetime) -> bool:
    """Give a run up; False if it is over already. Its runner learns it at the next heartbeat."""
    run = runs.lock(session, run_id=run_id)
    if run is None:
        raise DispatchError(f"there is no run {run_id}")
    before = RunState(run.state)
    if before not in {RunState.QUEUED, RunState.LEASED, RunState.MEASURING}:
        return False
    check_run_move(before, RunState.ABANDONED)
    run.state = RunState.ABANDONED
    run.lease_token, run.lease_until = None, None
    run.failure_reason, run.finished_at = why, now
    audit.record(
        session,
        actor=actor,
        action="abandon",
        subject=("run", run.id),
        before={"state": before.value},
        after={"state": RunState.ABANDONED.value, "why": why},
    )
    return True
