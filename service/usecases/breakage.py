"""Breakage: a commit that computes wrong results, or no longer builds, is told once, and once when it is over.

1. A history run of the newest measured commit finds workloads broken. Those that were broken before are no news; with
   any other the commit is told of, once per kind of breakage.
2. Each later run is asked whether it measured well what a told commit had broken: then the end is told, as a reply.

No figure is stored of a broken workload, so detection never sees it; this is what is said instead.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.notice import BreakageKind, breakage_of, breakage_subject
from service.domain.points import HISTORY_REASONS
from service.domain.states import NotificationEvent
from service.store import breakages
from service.store.tables import GitCommit, Run
from service.usecases import alert
from service.usecases.aftermath import Aftermath


def after_report(session: Session, *, run_id: int, now: datetime) -> Aftermath:
    """Tell of what a finished run of the history found broken, or right again; doing it twice changes nothing."""
    run = session.get_one(Run, run_id)
    commit = session.get_one(GitCommit, run.commit_id)
    aftermath = Aftermath()
    if run.reason not in HISTORY_REASONS or run.retracted_at is not None or commit.position is None:
        return aftermath
    if not breakages.is_newest(session, run=run, position=commit.position):
        return aftermath
    for kind in BreakageKind:
        event, subjects = NotificationEvent.REPAIRED, _over(session, run=run, position=commit.position, kind=kind)
        for subject in subjects:
            aftermath.add(_tell(session, run=run, event=event, subject=subject, now=now))
        if _is_news(session, run=run, position=commit.position, kind=kind):
            subject = breakage_subject(kind, commit_id=run.commit_id)
            aftermath.add(_tell(session, run=run, event=NotificationEvent.BROKEN, subject=subject, now=now))
    return aftermath


def _tell(session: Session, *, run: Run, event: NotificationEvent, subject: str, now: datetime) -> Aftermath:
    return alert.enqueue_notice(session, repository_id=run.repository_id, event=event, subject=subject, now=now)


def _is_news(session: Session, *, run: Run, position: int, kind: BreakageKind) -> bool:
    broken = {item.workload_id for item in breakages.broken_in(session, run=run, kind=kind)}
    if not broken:
        return False
    return not broken <= breakages.broken_before(
        session, run=run, position=position, kind=kind, workload_ids=sorted(broken)
    )


def _over(session: Session, *, run: Run, position: int, kind: BreakageKind) -> list[str]:
    """Return the told breakages of earlier commits of which this run measured everything well."""
    told = breakages.open_subjects(session, repository_id=run.repository_id, kind=kind)
    if not told:
        return []
    right = breakages.right_in(session, run=run)
    over: list[str] = []
    for subject in told:
        commit = session.get(GitCommit, breakage_of(subject)[1])
        if commit is None or commit.position is None or commit.position >= position:
            continue
        broken = {
            item.workload_id
            for earlier in breakages.runs_of(session, run=run, commit_id=commit.id)
            for item in breakages.broken_in(session, run=earlier, kind=kind)
        }
        if broken and broken <= right:
            over.append(subject)
    return over
