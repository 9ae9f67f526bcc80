"""/healthz: this process lives. /readyz: it can do its work (database, schema at its newest, broker)."""

from __future__ import annotations

import redis
from flask import Blueprint, Response
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from service.store import schema
from service.web.parts import as_json, services

BROKER_TIMEOUT_S = 2.0

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def alive() -> Response:
    """Answered by the process alone."""
    return as_json({"status": "alive"})


@blueprint.get("/readyz")
def ready() -> Response:
    """503 with what is missing while the service cannot do its work."""
    checks = {"database": _database(), "schema": _schema(), "broker": _broker()}
    ok = all(answer == "ok" for answer in checks.values())
    return as_json({"status": "ready" if ok else "not ready", "checks": checks}, status=200 if ok else 503)


def _database() -> str:
    try:
        with services().engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    except SQLAlchemyError:
        return "does not answer"
    return "ok"


def _schema() -> str:
    try:
        found = schema.database_revision(services().engine)
    except SQLAlchemyError:
        return "unknown"
    head = schema.head_revision()
    return "ok" if found == head else f"at {found}, needs {head}: run `kernelwatch migrate`"


def _broker() -> str:
    url = services().settings.redis_url or ""
    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=BROKER_TIMEOUT_S, socket_timeout=BROKER_TIMEOUT_S
        ) as client:
            client.ping()
    except (redis.RedisError, OSError, ValueError):
        return "does not answer"
    return "ok"
