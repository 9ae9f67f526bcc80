"""Triage: what people decide about regressions, each decision with its audit line.

Every action is allowed or refused by the state machine of `domain.states`, works on many regressions in one call, and
writes who did what, with the row before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from service.domain.states import (
    IllegalMoveError,
    NotificationEvent,
    RegressionState,
    check_regression_move,
)
from service.store.tables import AuditEvent, Regression
from service.usecases import alert

CLOSING = frozenset({RegressionState.FIXED, RegressionState.EXPECTED, RegressionState.NOT_REAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is decided: the state to move to, by whom, and what has to be said with it."""

    state: RegressionState
    actor: str
    assignee: str | None = None
    note: str | None = None
    expires_at: datetime | None = None

    def check(self) -> None:
        """Raise ValueError where a decision lacks what it must say."""
        if not self.actor.strip():
            raise ValueError("a decision needs the name of who takes it")
        if self.state is RegressionState.EXPECTED and not (self.note and self.assignee and self.expires_at):
            raise ValueError("accepting a regression as expected needs an owner, a reason and a date of expiry")
        if self.state is RegressionState.NOT_REAL and not self.note:
            raise ValueError("calling a regression not real needs a reason")


@dataclass(frozen=True, slots=True)
class TriageResult:
    """Which regressions moved, and why the others did not."""

    moved: tuple[int, ...]
    refused: Mapping[int, str]


def decide(session: Session, *, ids: Collection[int], decision: Decision, now: datetime) -> TriageResult:
    """Move regressions to a state; those that may not move say why and change nothing."""
    decision.check()
    found = session.scalars(
        select(Regression).where(Regression.id.in_(ids)).order_by(Regression.id).with_for_update()
    ).all()
    refused = dict.fromkeys(set(ids) - {row.id for row in found}, "there is no such regression")
    moved: list[int] = []
    audit: list[dict[str, Any]] = []
    for regression in found:
        try:
            check_regression_move(RegressionState(regression.state), decision.state)
        except IllegalMoveError as error:
            refused[regression.id] = str(error)
            continue
        before = snapshot(regression)
        _apply(regression, decision, now)
        moved.append(regression.id)
        audit.append(
            {
                "actor": decision.actor,
                "action": f"regression.{decision.state}",
                "subject_type": "regression",
                "subject_id": regression.id,
                "before": before,
                "after": snapshot(regression),
            }
        )
        if decision.state is RegressionState.FIXED:
            alert.enqueue(session, regression=regression, event=NotificationEvent.FIXED)
    if audit:
        session.execute(insert(AuditEvent), audit)
    return TriageResult(moved=tuple(moved), refused=refused)


def assign(session: Session, *, regression_id: int, assignee: str | None, actor: str) -> None:
    """Give a regression to somebody, or to nobody."""
    regression = session.get_one(Regression, regression_id, with_for_update=True)
    before = snapshot(regression)
    regression.assignee = assignee
    session.add(
        AuditEvent(
            actor=actor,
            action="regression.assign",
            subject_type="regression",
            subject_id=regression.id,
            before=before,
            after=snapshot(regression),
        )
    )


def snapshot(regression: Regression) -> dict[str, Any]:
    """Return what the audit log keeps of a regression."""
    return {
        "state": str(regression.state),
        "assignee": regression.assignee,
        "note": regression.note,
        "expires_at": regression.expires_at.isoformat() if regression.expires_at else None,
    }


def _apply(regression: Regression, decision: Decision, now: datetime) -> None:
    regression.state = decision.state
    regression.assignee = decision.assignee or regression.assignee
    regression.note = decision.note or regression.note
    regression.expires_at = decision.expires_at if decision.state is RegressionState.EXPECTED else None
    regression.closed_at = now if decision.state in CLOSING else None
