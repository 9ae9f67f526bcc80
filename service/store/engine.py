"""The engine and the session factory: made once in a composition root and passed on.

Every connection gets a statement time-out, so that one bad query cannot hold a web worker for ever, and a lock
time-out below it, so that a blocked migration says what it waits for.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.orm import Session, sessionmaker

DRIVER = "postgresql+psycopg2"


class StoreError(Exception):
    """Base of the store's own errors."""


def normalise_url(database_url: str) -> URL:
    """The URL with our driver named: a plain `postgresql://` (or `postgres://`) would mean another driver."""
    head, separator, tail = database_url.partition("://")
    if not separator or head.partition("+")[0] not in {"postgres", "postgresql"}:
        raise StoreError("DATABASE_URL must start with postgresql://; kernelwatch stores its data in PostgreSQL")
    return make_url(f"{DRIVER}://{tail}")


def make_engine(
    database_url: str,
    *,
    statement_timeout_s: float = 30.0,
    pool_size: int = 5,
    application_name: str = "kernelwatch",
) -> Engine:
    """An engine whose sessions speak UTC and give up after `statement_timeout_s`; nothing connects yet."""
    timeout_ms = int(statement_timeout_s * 1000)
    options = f"-c statement_timeout={timeout_ms} -c lock_timeout={timeout_ms // 2} -c timezone=UTC"
    return create_engine(
        normalise_url(database_url),
        pool_size=pool_size,
        max_overflow=5,
        pool_pre_ping=True,
        connect_args={"options": options, "application_name": application_name, "connect_timeout": 10},
        json_serializer=_strict_json,
    )


def make_sessions(engine: Engine) -> sessionmaker[Session]:
    """A factory of sessions whose objects stay readable after commit."""
    return sessionmaker(engine, expire_on_commit=False)


def _strict_json(value: Any) -> str:
    """JSON that refuses NaN and infinities, which no JSON reader (nor jsonb) would take back."""
    return json.dumps(value, allow_nan=False)
