"""Celery tasks of the service: each is a shim around one use case. What a task needs is given to `register`."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import structlog
from celery import Celery

from service.store import repositories, runs
from service.usecases import alert, dispatch, intake, life, nightly, standing, trace, weekly
from service.usecases.policy import DetectionPolicy
from service.usecases.ports import MirrorError
from service.wiring import DELIVER_TASK, Services, follow_up, senders

UNHANDLED_AFTER_S = 15.0  # by then the web process has finished with a delivery, or is dead
UNANALYSED_AFTER_S = 20.0
UNHEARD_AFTER_S = 10.0

log = structlog.get_logger(__name__)


def register(app: Celery, services: Callable[[], Services]) -> None:
    """Register every task; `services` is called within the process that runs the task."""

    def task(name: str, action: Callable[..., None]) -> None:
        def shim(**arguments: int) -> None:
            structlog.contextvars.clear_contextvars()
            action(services(), **arguments)

        app.task(name=name, shared=False)(shim)  # shared tasks would follow into every other app

    task("service.handle_delivery", handle_delivery)
    task("service.after_report", after_report)
    task("service.expire_leases", expire_leases)
    task("service.ring_queued", ring_queued)
    task("service.finish_deliveries", finish_deliveries)
    task("service.finish_reports", finish_reports)
    task(DELIVER_TASK, deliver_outbox)
    task("service.nightly", order_nightly)
    task("service.expire_acceptances", expire_acceptances)
    task("service.weekly_list", order_weekly_list)
    task("service.order_proofs", order_proofs)


def handle_delivery(parts: Services, *, delivery_id: int) -> None:
    """Finish a webhook whose fetch was slow, or whose web process died."""
    structlog.contextvars.bind_contextvars(delivery=delivery_id)
    try:
        handled = intake.finish_delivery(
            parts.sessions, delivery_id=delivery_id, mirrors=parts.mirrors, bell=parts.bell, clock=parts.clock
        )
    except MirrorError as error:
        log.warning("fetch_failed", error=str(error))  # the beat tries again
        return
    log.info("delivery_handled", runs=[run for _, run in handled.rings], note=handled.note)


def after_report(parts: Services, *, run_id: int) -> None:
    """Let detection and bisection look at a run, then ring and deliver what they asked for."""
    from service.usecases.analyse import analyse_run  # numpy and scipy: the parent process and the beat stay small

    structlog.contextvars.bind_contextvars(run=run_id)
    with parts.sessions.begin() as session:
        policy = DetectionPolicy(min_effect=parts.settings.min_effect)
        aftermath = analyse_run(
            session,
            run_id=run_id,
            now=parts.clock(),
            policy=policy,
            bridge_commits=parts.settings.bridge_commits,
        )
    try:
        trace.trace_culprits(parts.sessions, mirrors=parts.mirrors)  # before the messages, which name the owners
    except MirrorError as error:
        log.warning("trace_failed", error=str(error))
    follow_up(parts, aftermath)
    log.info("run_analysed", ordered=[ordered for _, ordered in aftermath.runs], deliver=aftermath.deliver)


def expire_leases(parts: Services) -> None:
    """Take runs back from runners that fell silent."""
    with parts.sessions.begin() as session:
        expired = dispatch.expire_leases(session, now=parts.clock(), max_attempts=parts.settings.max_attempts)
    for pool, run_id in expired.requeued:
        log.warning("lease_expired", run=run_id, pool=pool)
        parts.bell.ring(pool, run_id)
    for run_id in expired.failed:
        log.error("run_failed", run=run_id, reason="its last lease ran out")
        parts.bell.later("service.after_report", {"run_id": run_id})


def ring_queued(parts: Services) -> None:
    """Ring once for each pool where a run waits that should have been heard by now."""
    with parts.sessions() as session:
        waiting = runs.first_queued_per_pool(session, queued_before=parts.clock() - timedelta(seconds=UNHEARD_AFTER_S))
    for pool, run_id in waiting:
        parts.bell.ring(pool, run_id)


def finish_deliveries(parts: Services) -> None:
    """Find stored webhooks that nobody finished."""
    with parts.sessions() as session:
        found = repositories.unhandled(session, received_before=parts.clock() - timedelta(seconds=UNHANDLED_AFTER_S))
    for delivery_id in found:
        parts.bell.later("service.handle_delivery", {"delivery_id": delivery_id})


def finish_reports(parts: Services) -> None:
    """Find finished runs that detection has not looked at."""
    with parts.sessions() as session:
        found = runs.unanalysed(session, finished_before=parts.clock() - timedelta(seconds=UNANALYSED_AFTER_S))
    for run_id in found:
        parts.bell.later("service.after_report", {"run_id": run_id})


def expire_acceptances(parts: Services) -> None:
    """Open the regressions whose acceptance has run out."""
    with parts.sessions.begin() as session:
        aftermath = life.expire(session, now=parts.clock())
    follow_up(parts, aftermath)


def order_weekly_list(parts: Services) -> None:
    """Order the week's list of series with two levels, once."""
    with parts.sessions.begin() as session:
        aftermath = weekly.order_list(session, now=parts.clock())
    follow_up(parts, aftermath)


def order_proofs(parts: Services) -> None:
    """Give untrusted runners what they may prove themselves by."""
    with parts.sessions.begin() as session:
        aftermath = standing.order_proofs(session, now=parts.clock())
    follow_up(parts, aftermath)


def deliver_outbox(parts: Services) -> None:
    """Send the messages that are due."""
    sent = alert.deliver_due(
        parts.sessions,
        senders=senders(parts.settings),
        public_url=parts.public_url,
        clock=parts.clock,
        rng=random.Random(),
    )
    if sent:
        log.info("messages_sent", count=sent)


def order_nightly(parts: Services) -> None:
    """Order tonight's runs."""
    with parts.sessions.begin() as session:
        rings = nightly.order_nightly(session, now=parts.clock())
    for pool, run_id in rings:
        parts.bell.ring(pool, run_id)
