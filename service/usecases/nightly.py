"""Order the nightly run: the tip of the default branch, on every pool, with the long tier of workloads."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.contract import RunReason
from service.domain.states import RunState
from service.store import commits, repositories
from service.usecases.dispatch import order_run

NIGHTLY_PRIORITY = -10  # pushes and bisections come first


def order_nightly(session: Session, *, now: datetime) -> tuple[tuple[str, int], ...]:
    """Order tonight's runs of every repository that asked for them; asking twice in a night changes nothing.

    The tip is measured although its suite may be unchanged: a machine that drifts shows itself in unchanged kernels.
    """
    rings: list[tuple[str, int]] = []
    for repository in repositories.all_of_them(session):
        if not repository.settings.get("nightly"):
            continue
        last = commits.last_placed(session, repository_id=repository.id)
        tip = None if last is None else commits.by_sha(session, repository_id=repository.id, sha=last[1])
        if tip is None or tip.suite_tree is None:
            continue
        for pool in repository.pools:
            run = order_run(
                session,
                repository_id=repository.id,
                commit_id=tip.id,
                pool=pool,
                reason=RunReason.NIGHTLY,
                priority=NIGHTLY_PRIORITY,
                dedupe_key=f"nightly:{repository.id}:{now.date().isoformat()}:{pool}",
            )
            if run.state == RunState.QUEUED:
                rings.append((pool, run.id))
    return tuple(rings)
