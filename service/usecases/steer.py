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


MIN_BUDGET_S, MAX_BUDGET_S = 10.0, 1_000_000.0


class SteeringRefusedError(ValueError):
    """The search cannot do that now; the message says why."""


def steer(
    session: Session,
    *,
    regression_id: int,
    steering: Steering,
    actor: str,
    now: datetime,
    budget_s: float | None = None,
) -> Aftermath:
    """Act on the newest search of a regression; the caller commits, then rings.

    `budget_s` (device-seconds) is the new budget of a search that is resumed or repeated.
    """
    if budget_s is not None and not MIN_BUDGET_S <= budget_s <= MAX_BUDGET_S:
        raise SteeringRefusedError(f"a budget is {MIN_BUDGET_S:.0f} to {MAX_BUDGET_S:.0f} device-seconds")
    if budget_s is not None and steering not in {Steering.RESUME, Steering.RERUN}:
        raise SteeringRefusedError("a budget goes with resuming or repeating a search; pause a running one first")
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
        before={"state": before.value, "budget_s": bisection.budget_s},
        after={"budget_s": budget_s or bisection.budget_s},
    )
    if steering is Steering.CANCEL:
        bisections.cancel(session, bisection_id=bisection.id, now=now)
        return Aftermath()
    if steering is Steering.PAUSE:
        bisection.state = BisectionState.PAUSED
        return Aftermath()
    if steering is Steering.RERUN:
        return bisect.rerun(session, regression_id=regression_id, now=now, budget_s=budget_s)
    bisection.budget_s = budget_s or bisection.budget_s
    bisection.state = BisectionState.RUNNING
    session.flush()
    return bisect.advance(session, bisection_id=bisection.id, now=now)
