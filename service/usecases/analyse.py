"""What follows a finished run, in one transaction: detection, bisection, breakages, bridges, an A/A; and a note of it.

The note is what makes it certain: a task that is lost between the report and this leaves a run without it, and the
beat finds such runs. Doing it twice changes nothing.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.store import runs
from service.store.tables import Run
from service.usecases import aa, bisect, breakage, bridge, detect
from service.usecases.aftermath import Aftermath
from service.usecases.policy import DetectionPolicy


def analyse_run(
    session: Session, *, run_id: int, now: datetime, policy: DetectionPolicy, bridge_commits: int = bridge.COMMITS
) -> Aftermath:
    """Let detection and bisection look at a finished run; the caller commits, then rings and delivers."""
    if not runs.is_unanalysed(session, run_id=run_id):
        return Aftermath()
    aftermath = Aftermath()
    aftermath.add(detect.after_report(session, run_id=run_id, now=now, policy=policy))
    aftermath.add(bisect.after_report(session, run_id=run_id, now=now))
    aftermath.add(bridge.after_report(session, run_id=run_id, commits=bridge_commits))
    aftermath.add(breakage.after_report(session, run_id=run_id, now=now))
    aftermath.add(aa.order_after(session, run=session.get_one(Run, run_id)))
    runs.mark_analysed(session, run_id=run_id, now=now)
    return aftermath
