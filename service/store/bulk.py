"""Inserts of many rows that may be there already, as one statement with one parameter.

The driver's `executemany` sends each row by itself, and a statement with thousands of VALUES takes longer to write
than to run. So the rows travel as one JSON array, which Postgres turns into rows of the table's own type.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from service.store.tables import Base

BATCH = 5000


def insert_missing(session: Session, table: type[Base], rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows, all with the same columns, in the order given; one that breaks a unique key is left out."""
    remaining = iter(rows)
    while batch := [dict(row) for row in islice(remaining, BATCH)]:
        columns = ", ".join(f'"{name}"' for name in batch[0])
        statement = (
            f"INSERT INTO {table.__tablename__} ({columns}) SELECT {columns} "  # noqa: S608  # names of our own columns
            f"FROM jsonb_populate_recordset(CAST(NULL AS {table.__tablename__}), CAST(:rows AS jsonb)) "
            "ON CONFLICT DO NOTHING"
        )
        session.execute(text(statement), {"rows": json.dumps(batch, default=_moment, allow_nan=False)})


def _moment(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} cannot be stored")
