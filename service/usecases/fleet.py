"""What the machine did: one notice to whoever owns the machines, instead of an alarm to who owns the kernels.

A suspicion whose vendor control moved with it is no regression. It is kept as one that is not real (part -1 of its
range, which nothing groups into), so that the outbox's unique key makes its notice the only one of its commit range.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from service.domain.severity import Severity
from service.domain.states import NotificationEvent, RegressionState
from service.store import outbox, regressions
from service.store.tables import ChangePoint, GitCommit, Run
from service.usecases import alert
from service.usecases.aftermath import Aftermath

PART = -1


def tell_fleet(
    session: Session, *, run: Run, good: GitCommit, changes: Sequence[ChangePoint], now: datetime
) -> Aftermath:
    """Tell the fleet's channels, if there are any, that the machine moved between two commits."""
    channels = outbox.channels_of(session, repository_id=run.repository_id)
    if not changes or not any(alert.is_fleet(channel) for channel in channels):
        return Aftermath()
    lead = max(changes, key=lambda change: abs(change.z))
    notice = regressions.insert_regression(
        session,
        repository_id=run.repository_id,
        direction=lead.direction,
        state=RegressionState.NOT_REAL,
        good_commit_id=good.id,
        bad_commit_id=run.commit_id,
        part=PART,
        effect=lead.effect,
        effect_low=lead.effect_low,
        effect_high=lead.effect_high,
        severity=Severity.LOW,
        note=lead.withdrawn_reason,
        closed_at=now,
    )
    for change in changes:
        change.regression_id = notice.id
    session.flush()
    return alert.enqueue(session, regression=notice, event=NotificationEvent.ENVIRONMENT, now=now)
