"""The beat table: what happens by itself, and how often.

Each entry finds what a crash or a lost message left undone, so each may run twice, late, or at the same time as
another. A tick that nobody picked up before the next one is dropped.
"""

from __future__ import annotations

from typing import Any

from celery.schedules import crontab

from service.adapters.queue import SERVICE_QUEUE

EVERY_S: dict[str, float] = {
    "service.expire_leases": 10.0,
    "service.ring_queued": 15.0,
    "service.finish_deliveries": 30.0,
    "service.finish_reports": 30.0,
    "service.deliver_outbox": 15.0,
    "service.expire_acceptances": 600.0,
    "service.weekly_list": 3600.0,
    "service.order_proofs": 30.0,
}
NIGHTLY_HOUR_UTC = 2


def beat_schedule() -> dict[str, dict[str, Any]]:
    """Celery's `beat_schedule`."""
    table: dict[str, dict[str, Any]] = {
        name: {"task": name, "schedule": every_s, "options": {"queue": SERVICE_QUEUE, "expires": every_s}}
        for name, every_s in EVERY_S.items()
    }
    table["service.nightly"] = {
        "task": "service.nightly",
        "schedule": crontab(hour=NIGHTLY_HOUR_UTC, minute=0),
        "options": {"queue": SERVICE_QUEUE, "expires": 3600},
    }
    return table
