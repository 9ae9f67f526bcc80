"""From a push to queued runs: store the delivery, ask the mirror what happened, place the commits, order runs.

The payload of a webhook is only a hint (deliveries come late, twice, out of order, or describe commits that a force
push has taken away since). What was pushed, and in which order commits follow each other, is asked of the git mirror.

1. `receive` stores the delivery; after that commit it cannot be lost.
2. `finish_delivery` fetches, then `handle_delivery` does everything else in one transaction.
3. Only then the bell is rung.

A crash after 1 leaves an unhandled delivery, which the beat finishes. Every step may be done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session, sessionmaker

from service.contract import RunReason
from service.domain.policy import commits_to_measure, reason_to_skip
from service.domain.states import MeasurePolicy, RunState
from service.store import commits, locks, repositories
from service.store.bulk import insert_missing
from service.store.locks import Lock
from service.store.tables import GitCommit, Repository, Run, WebhookDelivery
from service.usecases.dispatch import order_run, skip_run
from service.usecases.ports import Bell, GitMirror, Mirrors

BRANCH_PREFIX = "refs/heads/"
NO_COMMIT = "0" * 40


@dataclass(frozen=True, slots=True)
class Push:
    """What a forge says of a push."""

    ref: str
    before: str
    after: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Handled:
    """What a delivery led to."""

    rings: tuple[tuple[str, int], ...] = ()  # (pool, run) of queued runs
    note: str | None = None


def receive(
    session: Session, *, repository: Repository, guid: str, event: str, push: Push, now: datetime
) -> int | None:
    """Store a delivery and return its id; None if it was stored before."""
    return repositories.insert_delivery(
        session,
        guid=guid,
        values={
            "repository_id": repository.id,
            "event": event,
            "ref": push.ref,
            "before_sha": push.before,
            "after_sha": push.after,
            "forced": push.forced,
            "received_at": now,
        },
    )


def finish_delivery(
    sessions: sessionmaker[Session],
    *,
    delivery_id: int,
    mirrors: Mirrors,
    bell: Bell,
    clock: Callable[[], datetime],
    fetch_timeout_s: float | None = None,
) -> Handled:
    """Fetch, handle, commit, ring. MirrorError (nothing is lost then) when the fetch does not succeed in time.

    Takes the factory, not a session: no transaction may stay open while the network is asked.
    """
    with sessions() as session:
        delivery = session.get(WebhookDelivery, delivery_id)
        if delivery is None or delivery.handled_at is not None:
            return Handled()
        repository = session.get_one(Repository, delivery.repository_id)
    mirror = mirrors.open(repository_id=repository.id, clone_url=repository.clone_url)
    mirror.sync(timeout_s=fetch_timeout_s)
    with sessions.begin() as session:
        handled = handle_delivery(session, delivery_id=delivery_id, mirror=mirror, now=clock())
    for pool, run_id in handled.rings:
        bell.ring(pool, run_id)
    return handled


def handle_delivery(session: Session, *, delivery_id: int, mirror: GitMirror, now: datetime) -> Handled:
    """Turn one delivery into commits and runs; does nothing if somebody has done it."""
    delivery = repositories.lock_unhandled(session, delivery_id=delivery_id)
    if delivery is None:
        return Handled()
    repository = session.get_one(Repository, delivery.repository_id)
    handled = _handle(session, repository=repository, delivery=delivery, mirror=mirror)
    delivery.handled_at = now
    delivery.note = handled.note
    return handled


def _handle(session: Session, *, repository: Repository, delivery: WebhookDelivery, mirror: GitMirror) -> Handled:
    ref, after = delivery.ref or "", delivery.after_sha or NO_COMMIT
    if not ref.startswith(BRANCH_PREFIX):
        return Handled(note=f"{ref or 'no ref'} is not a branch")
    branch = ref.removeprefix(BRANCH_PREFIX)
    if after == NO_COMMIT:
        return Handled(note=f"branch {branch} was deleted")
    if branch != repository.default_branch:
        return _record_branch(session, repository=repository, delivery=delivery, mirror=mirror, branch=branch)
    tip = place_line(session, repository=repository, mirror=mirror)
    if tip is None:
        return Handled(note=f"the mirror has no branch {branch}")
    note = None
    end = after
    if not (mirror.contains(after) and _on_line(session, repository=repository, sha=after)):
        end = tip
        note = f"{after[:12]} is not on {branch}; its tip {tip[:12]} is used instead"
    before = None if delivery.before_sha in {None, NO_COMMIT} else delivery.before_sha
    pushed = mirror.commits_between(before, end) or (end,)
    rings = order_pushed(session, repository=repository, pushed=pushed)
    return Handled(rings=rings, note=note)


def place_line(session: Session, *, repository: Repository, mirror: GitMirror) -> str | None:
    """Bring the stored first-parent line of the default branch up to date; returns its tip.

    A sha fixes all that came before it, so the stored line and git's agree up to some position and differ after it:
    the end of the stored line is tried first (an ordinary push), else the fork is found by bisection (a force push).
    Commits that fell off keep their rows and measurements but lose their position.
    """
    _one_at_a_time(session, repository)
    tip = mirror.branch_tip(repository.default_branch)
    if tip is None:
        return None
    line = mirror.first_parent_line(repository.default_branch)
    last = commits.last_placed(session, repository_id=repository.id)
    agreed = 0 if last is None else _agreed_length(session, repository=repository, line=line, stored_length=last[0] + 1)
    if last is not None and last[0] >= agreed:
        commits.unplace_after(session, repository_id=repository.id, position=agreed - 1)
    new = line[agreed:]
    record_commits(session, repository=repository, mirror=mirror, shas=new)
    commits.place(session, repository_id=repository.id, shas=new, first_position=agreed)
    return line[-1]


def _agreed_length(session: Session, *, repository: Repository, line: Sequence[str], stored_length: int) -> int:
    """How many commits from the root on are the same in git and in the store."""

    def same(position: int) -> bool:
        return commits.sha_at(session, repository_id=repository.id, position=position) == line[position]

    high = min(stored_length, len(line))
    if high == 0 or same(high - 1):
        return high
    low = 0
    while low < high:
        middle = (low + high) // 2
        if same(middle):
            low = middle + 1
        else:
            high = middle
    return low


def record_commits(session: Session, *, repository: Repository, mirror: GitMirror, shas: Sequence[str]) -> None:
    """Store commits with what git says of them, without a place on the line."""
    known = commits.ids_by_sha(session, repository_id=repository.id, shas=shas)
    missing = [sha for sha in shas if sha not in known]
    if not missing:
        return
    trees = mirror.suite_trees(missing, suite_paths(repository))
    rows = (
        {
            "repository_id": repository.id,
            "sha": facts.sha,
            "parents": list(facts.parents),
            "suite_tree": trees[facts.sha],
            "author": facts.author,
            "author_email": facts.author_email,
            "subject": facts.subject,
            "committed_at": facts.committed_at,
        }
        for facts in mirror.commits(missing)
    )
    insert_missing(session, GitCommit, rows)


def suite_paths(repository: Repository) -> tuple[str, ...]:
    """What can change a kernel's speed: the suite, then the watched paths."""
    return (repository.suite_path, *repository.watched_paths)


def order_pushed(session: Session, *, repository: Repository, pushed: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Order, per pool, the runs that the repository's policy asks for; returns the queued ones to ring for."""
    rings: list[tuple[str, int]] = []
    for sha in commits_to_measure(MeasurePolicy(repository.measure_policy), pushed):
        commit = commits.by_sha(session, repository_id=repository.id, sha=sha)
        assert commit is not None
        for pool in repository.pools:
            run = order_commit(session, repository=repository, commit=commit, pool=pool)
            if run.state == RunState.QUEUED:
                rings.append((pool, run.id))
    return tuple(rings)


def order_commit(session: Session, *, repository: Repository, commit: GitCommit, pool: str) -> Run:
    """Order one commit of a push, or write down why it is skipped."""
    dedupe_key = f"push:{repository.id}:{commit.sha}:{pool}"
    why = _why_skip(session, repository=repository, commit=commit, pool=pool)
    if why is not None:
        return skip_run(
            session,
            repository_id=repository.id,
            commit_id=commit.id,
            pool=pool,
            reason=RunReason.PUSH,
            dedupe_key=dedupe_key,
            why=why,
        )
    return order_run(
        session,
        repository_id=repository.id,
        commit_id=commit.id,
        pool=pool,
        reason=RunReason.PUSH,
        dedupe_key=dedupe_key,
    )


def _why_skip(session: Session, *, repository: Repository, commit: GitCommit, pool: str) -> str | None:
    measured = None
    if commit.position is not None:
        measured = commits.last_measured_before(
            session, repository_id=repository.id, pool=pool, position=commit.position
        )
    trees: Mapping[str, str | None] = {c.sha: c.suite_tree for c in (commit, measured) if c is not None}
    return reason_to_skip(commit.sha, trees=trees, measured_before=measured.sha if measured else None)


def _one_at_a_time(session: Session, repository: Repository) -> None:
    """Hold off other intakes of this repository until this transaction ends."""
    locks.take(session, Lock.INTAKE, repository_id=repository.id)


def _on_line(session: Session, *, repository: Repository, sha: str) -> bool:
    commit = commits.by_sha(session, repository_id=repository.id, sha=sha)
    return commit is not None and commit.position is not None


def _record_branch(
    session: Session, *, repository: Repository, delivery: WebhookDelivery, mirror: GitMirror, branch: str
) -> Handled:
    """Commits of another branch are written down; nothing is measured for them yet."""
    _one_at_a_time(session, repository)
    after = delivery.after_sha or NO_COMMIT
    if not mirror.contains(after):
        return Handled(note=f"branch {branch}: {after[:12]} is gone")
    fork = mirror.branch_tip(repository.default_branch)
    pushed = mirror.commits_between(fork, after)[-1000:]
    record_commits(session, repository=repository, mirror=mirror, shas=pushed)
    return Handled(note=f"branch {branch}: {len(pushed)} commits recorded, not measured")
