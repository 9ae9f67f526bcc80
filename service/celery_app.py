"""The worker and the beat: `celery -A service.celery_app worker -Q service`, `celery -A service.celery_app beat`.

`app` is made when Celery asks for it, not when this module is imported.
"""

from __future__ import annotations

import functools
from typing import Any

from celery import Celery
from celery.signals import setup_logging

from service import tasks
from service.adapters.queue import SERVICE_QUEUE, transport_settings
from service.logs import configure_logging
from service.schedule import beat_schedule
from service.settings import Settings
from service.wiring import Services, connect, require

TASK_TIME_LIMIT_S = 600


def make_celery(settings: Settings) -> Celery:
    """The service's Celery application, with its tasks and its beat table."""
    app = Celery("kernelwatch", broker=require(settings.redis_url, "REDIS_URL"), set_as_current=False)
    app.conf.update(
        **transport_settings(),
        task_default_queue=SERVICE_QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_time_limit=TASK_TIME_LIMIT_S,
        task_soft_time_limit=TASK_TIME_LIMIT_S - 30,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_max_memory_per_child=400_000,  # kilobytes: a leak ends with a fresh process, not with the machine
        beat_schedule=beat_schedule(),
    )

    @functools.cache
    def services() -> Services:  # made in the process that runs the task: connections do not survive a fork
        return connect(settings, celery=app)

    tasks.register(app, services)
    return app


def _configure(settings: Settings) -> None:
    def configure(**_: Any) -> None:
        configure_logging(level=settings.log_level, log_format=settings.log_format)

    setup_logging.connect(configure, weak=False)


@functools.cache
def _app_of_this_process() -> Celery:
    settings = Settings()
    _configure(settings)
    return make_celery(settings)


def __getattr__(name: str) -> Celery:
    """Make `app` on first use."""
    if name in {"app", "celery"}:
        return _app_of_this_process()
    raise AttributeError(name)
