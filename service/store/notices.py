"""Reading what a notice says: a broken commit and what it broke, its end, the week's two-level series, or a runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.domain.notice import WEEKLY_KIND, BreakageKind, Notice, NoticeLine, breakage_of
from service.domain.points import HISTORY_REASONS
from service.domain.states import NotificationEvent
from service.store.breakages import Broken, broken_in
from service.store.tables import Benchmark, Channel, GitCommit, Notification, Repository, Run, Series, Workload

LISTED = 20  # workloads or series named in a notice; the page has them all
WORDS = {
    BreakageKind.WRONG_RESULT: ("Wrong result", "computes a wrong result in", "It is not timed until it is right."),
    BreakageKind.BUILD_FAILED: ("Does not build", "does not build", "Nothing is measured of it."),
}


@dataclass(frozen=True, slots=True)
class TwoLevels:
    """A series that moves between two levels by itself."""

    series_id: int
    workload: str
    pool: str
    reason: str


def read_notice(session: Session, *, notification: Notification, public_url: str) -> Notice:
    """Gather everything that the notice of one outbox row says, in one snapshot."""
    channel = session.get_one(Channel, notification.channel_id)
    repository = session.get_one(Repository, channel.repository_id)
    key = f"kernelwatch-{repository.id}-{notification.id}"
    base = public_url.rstrip("/")
    if notification.event == NotificationEvent.BIMODAL:
        return _weekly(session, repository=repository, subject=notification.subject or "", key=key, base=base)
    if notification.event == NotificationEvent.RUNNER:
        return _runner(notification, repository=repository, key=key, base=base)
    return _breakage(session, repository=repository, notification=notification, key=key, base=base)


def _runner(notification: Notification, *, repository: Repository, key: str, base: str) -> Notice:
    words = notification.words or ""
    return Notice(
        key=key,
        event=NotificationEvent.RUNNER,
        subject=notification.subject or "",
        repository=repository.name,
        title=words.partition(":")[0],
        explanation=words,
        lines=(),
        url=f"{base}/runners",
    )


def _breakage(session: Session, *, repository: Repository, notification: Notification, key: str, base: str) -> Notice:
    subject = notification.subject or ""
    kind, commit_id = breakage_of(subject)
    commit = session.get_one(GitCommit, commit_id)
    head, does, then = WORDS[kind]
    broken = _broken(session, commit=commit, kind=kind)
    what = broken[0].workload if broken else "the suite"
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    over = notification.event == NotificationEvent.REPAIRED
    by = f"{commit.sha[:12]} {commit.subject} ({commit.author})"
    return Notice(
        key=key,
        event=NotificationEvent(notification.event),
        subject=subject,
        repository=repository.name,
        title=f"{'Right again' if over else head}: {what}{more}{'' if over else f' at {commit.sha[:12]}'}",
        explanation=(
            f"A later commit has put right what {by} broke."
            if over
            else f"{by} {does} {f'{len(broken)} workloads' if kind is BreakageKind.WRONG_RESULT else ''}".rstrip()
            + f". {then}"
        ),
        lines=tuple(
            NoticeLine(name=item.workload, words=item.error.splitlines()[0] if item.error else "")
            for item in broken[:LISTED]
        ),
        url=f"{base}/commits/{commit.sha}",
    )


def _broken(session: Session, *, commit: GitCommit, kind: BreakageKind) -> Sequence[Broken]:
    found: dict[int, Broken] = {}
    runs = select(Run).where(Run.commit_id == commit.id, Run.reason.in_(sorted(HISTORY_REASONS))).order_by(Run.id)
    for run in session.scalars(runs):
        found |= {item.workload_id: item for item in broken_in(session, run=run, kind=kind)}
    return sorted(found.values(), key=lambda item: item.workload)


def two_level_series(session: Session, *, repository_id: int) -> tuple[TwoLevels, ...]:
    """Return the series of a repository whose last word is that they have two levels."""
    rows = session.execute(
        select(Series.id, Workload.key, Series.pool, Series.verdict_reason)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(Series.repository_id == repository_id, Series.verdict == WEEKLY_KIND, Benchmark.control.is_(False))
        .order_by(Workload.key, Series.id)
    )
    return tuple(TwoLevels(series_id, key, pool, reason or "") for series_id, key, pool, reason in rows)


def _weekly(session: Session, *, repository: Repository, subject: str, key: str, base: str) -> Notice:
    found = two_level_series(session, repository_id=repository.id)
    week = subject.partition(":")[2]
    return Notice(
        key=key,
        event=NotificationEvent.BIMODAL,
        subject=subject,
        repository=repository.name,
        title=f"{len(found)} series with two levels, {week}",
        explanation=(
            "They move between two levels by themselves (placement, clocks, a cache that fits or not), so no step in "
            "them is told. Whoever finds out why gets their alerts back."
        ),
        lines=tuple(
            NoticeLine(name=f"{item.workload} on {item.pool}", words=item.reason, url=f"{base}/series/{item.series_id}")
            for item in found[:LISTED]
        ),
        url=f"{base}/?state=unguarded",
    )
