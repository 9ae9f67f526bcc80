"""Advisory locks: one at a time may do a thing to a repository, until its transaction ends."""

from __future__ import annotations

from enum import IntEnum

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session


class Lock(IntEnum):
    """What is done by one at a time; the numbers are lock classes of the database, so each stands here once."""

    FINDINGS = 1263424331  # grouping change points into regressions
    INTAKE = 1263424332  # taking in what was pushed
    LINEAGE = 1263424333  # making series and linking them to their kin


def take(session: Session, lock: Lock, *, repository_id: int) -> None:
    """Wait until nobody else holds this lock of this repository, and hold it until the transaction ends."""
    session.execute(select(func.pg_advisory_xact_lock(text(str(lock.value)), repository_id % 2**31)))
