"""Triage: what people decide about regressions, each decision with its audit line.

Every action is allowed or refused by the state machine of `domain.states`, works on many regressions in one call, and
writes who did what, with the row before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from service.domain.severity import severity_of
from service.domain.states import (
    IllegalMoveError,
    RegressionState,
    check_regression_move,
)
from service.store import audit, lives, regressions
from service.store.tables import AuditEvent, ChangePoint, Regression
from service.usecases import alert
from service.usecases.aftermath import Aftermath

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
    aftermath: Aftermath


def decide(session: Session, *, ids: Collection[int], decision: Decision, now: datetime) -> TriageResult:
    """Move regressions to a state; those that may not move say why and change nothing."""
    decision.check()
    found = session.scalars(
        select(Regression).where(Regression.id.in_(ids)).order_by(Regression.id).with_for_update()
    ).all()
    refused = dict.fromkeys(set(ids) - {row.id for row in found}, "there is no such regression")
    aftermath = Aftermath()
    moved: list[int] = []
    lines: list[dict[str, Any]] = []
    for regression in found:
        try:
            check_regression_move(RegressionState(regression.state), decision.state)
        except IllegalMoveError as error:
            refused[regression.id] = str(error)
            continue
        before = snapshot(regression)
        _apply(regression, decision, now)
        moved.append(regression.id)
        lines.append(
            {
                "actor": decision.actor,
                "action": f"regression.{decision.state}",
                "subject_type": "regression",
                "subject_id": regression.id,
                "before": before,
                "after": snapshot(regression),
            }
        )
        if decision.state is RegressionState.FIXED:  # people hear of it when a measurement has proved it
            from service.usecases import life  # numpy and scipy, which the web process seldom needs

            session.flush()
            aftermath.add(life.verify_fix(session, regression=regression))
    if lines:
        session.execute(insert(AuditEvent), lines)
    if decision.state in alert.SILENT_STATES:
        alert.silence(session, regression_ids=moved)
    return TriageResult(moved=tuple(moved), refused=refused, aftermath=aftermath)


def assign(session: Session, *, regression_id: int, assignee: str | None, actor: str) -> None:
    """Give a regression to somebody, or to nobody."""
    regression = session.get_one(Regression, regression_id, with_for_update=True)
    before = snapshot(regression)
    regression.assignee = assignee
    _log(session, actor=actor, action="regression.assign", regression=regression, before=before)


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


def merge(session: Session, *, ids: Collection[int], into: int, actor: str, now: datetime) -> None:
    """Put the change points of some regressions under another one of the same repository and direction.

    Raises ValueError where they do not belong together.
    """
    target = session.get_one(Regression, into, with_for_update=True)
    for regression_id in sorted(set(ids) - {into}):
        source = session.get_one(Regression, regression_id, with_for_update=True)
        if (source.repository_id, source.direction) != (target.repository_id, target.direction):
            raise ValueError(f"regression {regression_id} is of another repository or direction than {into}")
        before = snapshot(source)
        session.execute(
            update(ChangePoint).where(ChangePoint.regression_id == source.id).values(regression_id=target.id)
        )
        source.state, source.closed_at = RegressionState.NOT_REAL, now
        source.note = f"merged into regression {target.id}"
        _log(session, actor=actor, action="regression.merged", regression=source, before=before)


def split(session: Session, *, regression_id: int, change_ids: Collection[int], actor: str) -> Regression:
    """Give some change points of a regression a regression of their own, with the same range.

    Raises ValueError unless at least one change point leaves and one stays.
    """
    source = session.get_one(Regression, regression_id, with_for_update=True)
    changes = regressions.changes_in(session, regression_id=regression_id)
    leaving = [change for change in changes if change.id in set(change_ids)]
    if not leaving or len(leaving) == len(changes):
        raise ValueError("a split needs at least one change point that leaves and one that stays")
    lead = leaving[0]
    other = regressions.insert_regression(
        session,
        repository_id=source.repository_id,
        direction=source.direction,
        state=source.state,
        good_commit_id=source.good_commit_id,
        bad_commit_id=source.bad_commit_id,
        culprit_commit_id=source.culprit_commit_id,
        part=lives.next_part(session, regression=source),
        effect=lead.effect,
        effect_low=lead.effect_low,
        effect_high=lead.effect_high,
        severity=severity_of(lead.effect),
        confirmed_at=source.confirmed_at,
        attributed_at=source.attributed_at,
        note=f"split from regression {source.id}",
    )
    for change in leaving:
        change.regression_id = other.id
    session.flush()
    _log(session, actor=actor, action="regression.split", regression=other, before=snapshot(source))
    return other


def _log(session: Session, *, actor: str, action: str, regression: Regression, before: dict[str, Any]) -> None:
    audit.record(
        session,
        actor=actor,
        action=action,
        subject=("regression", regression.id),
        before=before,
        after=snapshot(regression),
    )
