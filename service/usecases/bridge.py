"""Bridges: when a pool's environment or harness changes, the last measured commits are measured again in the new one.

The first run that reaches a new class (comparable key and harness epoch) orders them, at the lowest priority and once
per class and workload, whoever else comes first and however often the pool changes to and fro. A bridge never raises
an alarm: its commits were judged in the old environment. It gives the new series its first points and shows how the
two environments differ on the same code. A new benchmark version has no bridge, since older commits hold the older one.
"""

from __future__ import annotations

import hashlib

from sqlalchemy.orm import Session

from service.contract import RunReason
from service.domain.points import HISTORY_REASONS
from service.domain.states import RunState
from service.store import bridges, lineage
from service.store.tables import Run
from service.usecases.aftermath import Aftermath
from service.usecases.dispatch import order_run

COMMITS = 5  # what a service orders that was not told otherwise
BRIDGE_PRIORITY = -20  # below the nightly run: nobody waits for it
BRIDGE_ATTEMPTS = 3
"""A pool of two environments may hand a bridge to the wrong one; a third try that goes astray is the last."""


def after_report(session: Session, *, run_id: int, commits: int = COMMITS) -> Aftermath:
    """Order what a run makes necessary; called under the repository's lock, and again without effect."""
    run = session.get_one(Run, run_id)
    if run.state != RunState.REPORTED or run.retracted_at is not None:
        return Aftermath()
    if run.reason == RunReason.BRIDGE:
        return _again_if_astray(session, run=run)
    if run.reason in HISTORY_REASONS and commits:
        return _order(session, run=run, commits=commits)
    return Aftermath()


def _order(session: Session, *, run: Run, commits: int) -> Aftermath:
    place = bridges.class_of(session, run=run)
    if place is None:
        return Aftermath()
    prefix = _prefix(run, place)
    new = bridges.unbridged(session, run=run, prefix=prefix)
    mine = {item.series_id for item in new}
    siblings = lineage.siblings(session, series_ids=mine)
    wanted = bridges.last_measured(
        session, series_ids=frozenset().union(*siblings.values()) - mine, but=mine, limit=commits
    )
    keys = sorted({item.workload_key for item in new})
    ordered = [
        order_run(
            session,
            repository_id=run.repository_id,
            commit_id=commit.id,
            pool=run.pool,
            reason=RunReason.BRIDGE,
            priority=BRIDGE_PRIORITY,
            dedupe_key=f"{prefix}{_digest(*keys)}:{commit.sha}:1",
            workload_keys=keys,
        )
        for commit in wanted
    ]
    return Aftermath(runs=[(run.pool, bridge.id) for bridge in ordered])


def _again_if_astray(session: Session, *, run: Run) -> Aftermath:
    """Order a bridge once more that a runner of another environment has measured."""
    place = bridges.class_of(session, run=run)
    stem, _, attempt = run.dedupe_key.rpartition(":")
    if place is None or run.dedupe_key.startswith(_prefix(run, place)) or int(attempt) >= BRIDGE_ATTEMPTS:
        return Aftermath()
    again = order_run(
        session,
        repository_id=run.repository_id,
        commit_id=run.commit_id,
        pool=run.pool,
        reason=RunReason.BRIDGE,
        priority=BRIDGE_PRIORITY,
        dedupe_key=f"{stem}:{int(attempt) + 1}",
        workload_keys=run.workload_keys,
    )
    return Aftermath(runs=[(run.pool, again.id)])


def _prefix(run: Run, place: tuple[str, int]) -> str:
    comparable_key, harness_epoch = place
    return f"bridge:{run.repository_id}:{run.pool}:{_digest(comparable_key, str(harness_epoch))}:"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
