"""Commits and their places on the first-parent line of the default branch."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from service.contract import RunReason
from service.domain.states import RunState
from service.store.tables import GitCommit, Run

BATCH = 1000


def by_sha(session: Session, *, repository_id: int, sha: str) -> GitCommit | None:
    """The commit with this full sha, if it was seen."""
    return session.scalar(select(GitCommit).where(GitCommit.repository_id == repository_id, GitCommit.sha == sha))


def ids_by_sha(session: Session, *, repository_id: int, shas: Collection[str]) -> dict[str, int]:
    """Ids of the commits among `shas` that were seen."""
    rows = session.execute(
        select(GitCommit.sha, GitCommit.id).where(
            GitCommit.repository_id == repository_id, GitCommit.sha.in_(list(shas))
        )
    )
    return dict(rows.all())


def last_placed(session: Session, *, repository_id: int) -> tuple[int, str] | None:
    """(position, sha) of the newest commit on the line as we know it."""
    row = session.execute(
        select(GitCommit.position, GitCommit.sha)
        .where(GitCommit.repository_id == repository_id, GitCommit.position.is_not(None))
        .order_by(GitCommit.position.desc())
        .limit(1)
    ).first()
    return None if row is None or row.position is None else (row.position, row.sha)


def sha_at(session: Session, *, repository_id: int, position: int) -> str | None:
    """The sha at a position of the line as we know it."""
    return session.scalar(
        select(GitCommit.sha).where(GitCommit.repository_id == repository_id, GitCommit.position == position)
    )


def unplace_after(session: Session, *, repository_id: int, position: int) -> int:
    """Take every commit after `position` off the line (a force push); returns how many fell."""
    fallen = session.scalars(
        update(GitCommit)
        .where(GitCommit.repository_id == repository_id, GitCommit.position > position)
        .values(position=None)
        .returning(GitCommit.id)
    ).all()
    return len(fallen)


def place(session: Session, *, repository_id: int, shas: Sequence[str], first_position: int) -> None:
    """Give consecutive positions to commits that are stored already."""
    for start in range(0, len(shas), BATCH):
        batch = list(shas[start : start + BATCH])
        line = func.unnest(batch).table_valued("sha", with_ordinality="place").render_derived()
        session.execute(
            update(GitCommit)
            .where(GitCommit.repository_id == repository_id, GitCommit.sha == line.c.sha)
            .values(position=line.c.place + (first_position + start - 1))
            .execution_options(synchronize_session=False)
        )
    session.expire_all()


def last_measured_before(session: Session, *, repository_id: int, pool: str, position: int) -> GitCommit | None:
    """The newest commit before `position` that `pool` has measured, or is going to measure, as a whole.

    Runs of single workloads (bisection, confirmation) do not count, nor do runs that failed.
    """
    return session.scalar(
        select(GitCommit)
        .join(Run, Run.commit_id == GitCommit.id)
        .where(
            GitCommit.repository_id == repository_id,
            GitCommit.position < position,
            Run.pool == pool,
            Run.workload_keys == [],
            Run.reason != RunReason.CANARY,
            Run.state.in_([RunState.QUEUED, RunState.LEASED, RunState.MEASURING, RunState.REPORTED]),
        )
        .order_by(GitCommit.position.desc())
        .limit(1)
    )


def names_at(session: Session, *, repository_id: int, positions: Collection[int]) -> dict[int, tuple[str, str]]:
    """Sha and subject of the commits at these places of the first-parent line."""
    rows = session.execute(
        select(GitCommit.position, GitCommit.sha, GitCommit.subject).where(
            GitCommit.repository_id == repository_id, GitCommit.position.in_(list(positions))
        )
    )
    return {position: (sha, subject) for position, sha, subject in rows if position is not None}
