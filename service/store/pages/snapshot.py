"""The pages' door to the database: read-only, one snapshot per page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.orm import Session
from sqlalchemy.sql import Executable

Row = TypeVar("Row")


class Pages:
    """Opens snapshots for pages.

    REPEATABLE READ gives every query of a page the same moment; READ ONLY lets Postgres refuse a page that writes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Yield a session whose queries all see one moment of the database."""
        with Session(self._engine) as session:
            yield session


def fetch(session: Session, statement: Executable, row_type: type[Row]) -> tuple[Row, ...]:
    """Run a statement and build one `row_type` per row; the columns' labels are the fields' names."""
    return tuple(row_type(**row) for row in _mappings(session, statement))


def fetch_one(session: Session, statement: Executable, row_type: type[Row]) -> Row | None:
    """Like `fetch`, for a statement that finds one row or none."""
    found = fetch(session, statement, row_type)
    return found[0] if found else None


def _mappings(session: Session, statement: Executable) -> Sequence[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in session.execute(statement).mappings()]


def words(query: str) -> tuple[str, ...]:
    """Split a filter box's text into ILIKE patterns; every one must match. At most eight, so that no page is slow."""
    escaped = (word.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_") for word in query.split()[:8])
    return tuple(f"%{word}%" for word in escaped)
