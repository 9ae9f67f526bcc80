"""Rating: the severity of a regression follows what is known of its size and reach; asked whenever either changes."""

from __future__ import annotations

from sqlalchemy.orm import Session

from service.domain.severity import rate
from service.store.impact import reach_of
from service.store.tables import Regression


def set_severity(session: Session, *, regression: Regression) -> None:
    """Rate a regression whose change points are in place."""
    session.flush()
    reach = reach_of(session, regression_id=regression.id, repository_id=regression.repository_id)
    regression.severity = rate(regression.effect, reach).severity
