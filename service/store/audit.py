"""The audit log: who did what, when, with the state before and after."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from service.store.tables import AuditEvent


def record(
    session: Session,
    *,
    actor: str,
    action: str,
    subject: tuple[str, int],
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    """Add one line to the log, in the transaction of the deed itself."""
    subject_type, subject_id = subject
    session.add(
        AuditEvent(
            actor=actor, action=action, subject_type=subject_type, subject_id=subject_id, before=before, after=after
        )
    )
