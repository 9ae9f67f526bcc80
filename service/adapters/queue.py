"""The bell: Celery messages that say "look at run 42", and nothing more.

A ring never raises and never waits long. The work is in Postgres already; if the broker is away, the beat rings again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from celery import Celery
from kombu.exceptions import KombuError

MEASURE_TASK = "runners.measure"
SERVICE_QUEUE = "service"
RING_EXPIRES_S = 300.0

log = structlog.get_logger(__name__)


def pool_queue(pool: str) -> str:
    """The queue that the runners of a pool listen to."""
    return f"pool.{pool}"


def make_producer(redis_url: str) -> Celery:
    """A Celery application that only sends, and gives up quickly when the broker is away."""
    app = Celery("kernelwatch", broker=redis_url, set_as_current=False)
    settings = transport_settings()
    settings["broker_transport_options"] |= {"max_retries": 1, "interval_start": 0, "interval_step": 0.1}
    app.conf.update(settings)
    return app


def transport_settings() -> dict[str, Any]:
    """Settings that every sender and worker shares.

    The visibility time-out lies above the longest job, because Celery gives a task that outlasts it to a second
    worker. Recovery does not wait for it: leases and unhandled rows in Postgres bring lost work back within seconds.
    """
    return {
        "task_ignore_result": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "enable_utc": True,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": 12 * 3600,
            "unacked_restore_interval": 1,
            "socket_connect_timeout": 2.0,
            "socket_timeout": 30.0,
            "socket_keepalive": True,
            "health_check_interval": 25,
        },
    }


class CeleryBell:
    """Rings through a Celery application."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def ring(self, pool: str, run_id: int) -> None:
        """Tell the runners of `pool` that a run waits; a message nobody hears in time is dropped."""
        self._send(MEASURE_TASK, {"run_id": run_id}, queue=pool_queue(pool), expires=RING_EXPIRES_S)

    def later(self, task: str, kwargs: Mapping[str, Any], *, countdown_s: float = 0.0) -> None:
        """Ask the service's workers to do `task`."""
        self._send(task, dict(kwargs), queue=SERVICE_QUEUE, countdown=countdown_s or None)

    def _send(self, task: str, kwargs: dict[str, Any], **options: Any) -> None:
        try:
            self._app.send_task(task, kwargs=kwargs, retry=False, ignore_result=True, **options)
        except (KombuError, OSError) as error:
            log.warning("bell_not_rung", task=task, arguments=kwargs, error=str(error))
