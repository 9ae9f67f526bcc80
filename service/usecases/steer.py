"""What people may do to a bisection: pause, resume, cancel, repeat; each with its audit line."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from sqlalchemy.orm import Session

from service.domain.states import BisectionState
from service.store import audit, bisections, regressions
from service.store.tables import Bisection
from service.usecases import bisect
from service.usecases.aftermath import Aftermath


class Steering(StrEnum):
    """The four pedals."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RERUN = "rerun"


NEEDS = {
    Steering.PAUSE: frozenset({BisectionState.RUNNING}),
    Steering.RESUME: frozenset({BisectionState.PAUSED}),
    Steering.CANCEL: frozenset({BisectionState.RUNNING, BisectionState.PAUSED}),
    Steering.RERUN: frozenset({BisectionState.DONE, BisectionState.CANCELLED}),
}


class SteeringRefusedError(ValueError):
    """The search cannot do that now; the message says why."""


def steer(session: Session, *, regression_id: int, steering: Steering, actor: str, now: datetime) -> Aftermath:
    """Act on the newest search of a regression; the caller commits, then rings."""
    last = regressions.running_bisection(session, regression_id=regression_id)
    if last is None:
        raise SteeringRefusedError(f"regression {regression_id} has no bisection")
    bisection = session.get_one(Bisection, last.id, with_for_update=True, populate_existing=True)
    before = BisectionState(bisection.state)
    if before not in NEEDS[steering]:
        raise SteeringRefusedError(f"a bisection that is {before} cannot {steering}")
    audit.record(
        session,
        actor=actor,
        action=f"bisection.{steering}",
        subject=("bisection", bisection.id),
        before={"state": before.value},
    )
    if steering is Steering.CANCEL:
        bisections.cancel(session, bisection_id=bisection.id, now=now)
        return Aftermath()
    if steering is Steering.PAUSE:
        bisection.state = BisectionState.PAUSED
        return Aftermath()
    if steering is Steering.RERUN:
        return bisect.rerun(session, regression_id=regression_id, now=now)
    bisection.state = BisectionState.RUNNING
    session.flush()
    return bisect.advance(session, bisection_id=bisection.id, now=now)
