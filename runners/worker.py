"""The composition root of a device host: a Celery worker that hears the doorbell, and a poller for when nobody rings.

One prefork child does everything: the task `runners.measure` and the poller both call `Agent.drain`, and only one of
them at a time. The message is a doorbell and nothing else: a second copy finds the lease taken. If the broker is away,
or was never given, the poller alone keeps the runner at work over HTTP.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog
from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_process_init, worker_process_shutdown, worker_shutting_down

from runners.config import WorkerConfig
from runners.identity import RunnerIdentity

if TYPE_CHECKING:  # only the process that measures loads the rest: the one that waits stays small
    from runners.agent import Agent, Outcome

TASK = "runners.measure"
VISIBILITY_TIMEOUT_S = 7200  # above the longest run: a lost run comes back by its lease, not by the broker
GIVE_BACK_S = 20.0
_log = structlog.get_logger()


class Doorbell:
    """Lets the task and the poller share one agent, one at a time, in the process that measures."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._one_at_a_time = threading.Lock()
        self._rung = threading.Event()
        self._stopping = threading.Event()
        self._agent: Agent | None = None

    def open(self) -> None:
        """Start polling; called in the process that measures, after it was forked."""
        from runners.host import tidy

        removed = tidy(self._config)
        if removed:
            _log.info("removed what a crash left", folders=removed)
        threading.Thread(target=self.poll_until_stopped, name="poll", daemon=True).start()

    def stop(self) -> None:
        """Stop at the next opportunity; the run in hand is given back to the service."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, and wait a while until the run in hand has been given back."""
        self.stop()
        if self._one_at_a_time.acquire(timeout=GIVE_BACK_S):
            self._one_at_a_time.release()

    def ring(self, run_id: int | None) -> Outcome:
        """Look for work now, unless that is being done already."""
        from runners.agent import Outcome
        from runners.host import build_agent

        self._rung.set()
        outcome = Outcome.BUSY
        while self._rung.is_set() and not self._stopping.is_set():
            if not self._one_at_a_time.acquire(blocking=False):
                return Outcome.BUSY  # whoever is at it sees the ring before it ends
            try:
                self._rung.clear()
                if self._agent is None:
                    self._agent = build_agent(self._config, stopping=self._stopping)
                outcome = self._agent.drain(run_id)
            finally:
                self._one_at_a_time.release()
        return outcome

    def poll_until_stopped(self) -> None:
        """Look for work again and again, with jitter so that a fleet does not ask at once."""
        rng = random.Random()
        while not self._stopping.is_set():
            try:
                self.ring(None)
            except Exception:  # noqa: BLE001 - said in the log, and looked for again
                _log.exception("a look for work failed; the next one comes")
            self._stopping.wait(self._config.poll_s * rng.uniform(0.8, 1.2))


def build_app(config: WorkerConfig, doorbell: Doorbell) -> Celery:
    """The Celery application of one runner; the queue is that of its pool."""
    pool = RunnerIdentity.load(config.state_dir).pool
    app = Celery("kernelwatch-runner", broker=config.broker_url, set_as_current=False)
    app.conf.update(
        task_queues={f"pool.{pool}": {}},
        task_default_queue=f"pool.{pool}",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_serializer="json",
        accept_content=["json"],
        worker_prefetch_multiplier=1,
        worker_concurrency=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_send_task_events=False,
        worker_proc_alive_timeout=60.0,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": 5,
        },
    )

    @app.task(name=TASK)  # type: ignore[untyped-decorator]
    def measure(run_id: int | None = None, **_: Any) -> str:
        """Look at one run."""
        return str(doorbell.ring(run_id))

    return app


def serve(config: WorkerConfig) -> None:
    """Run until stopped: a Celery worker when there is a broker, else the poller in this process."""
    doorbell = Doorbell(config)
    if config.broker_url is None:
        doorbell.poll_until_stopped()
        return
    app = build_app(config, doorbell)
    shutdown = _ShutdownPipe()

    def on_init(**_: object) -> None:
        shutdown.watch(doorbell.stop)
        doorbell.open()

    def on_process_shutdown(**_: object) -> None:
        doorbell.close()

    def on_shutting_down(**_: object) -> None:
        shutdown.announce()

    def on_logging(**_: object) -> None:
        logging.getLogger("celery").setLevel(logging.INFO)

    worker_process_init.connect(on_init, weak=False)
    worker_process_shutdown.connect(on_process_shutdown, weak=False)
    worker_shutting_down.connect(on_shutting_down, weak=False)
    setup_logging.connect(on_logging, weak=False)  # its presence keeps Celery from arranging logging anew
    # Celery warns root because of pickled messages; only JSON is accepted here, and foreign code runs unprivileged.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    app.Worker(
        pool="prefork", concurrency=1, without_gossip=True, without_mingle=True, without_heartbeat=True, quiet=True
    ).start()


class _ShutdownPipe:
    """Tells the measuring process that its parent stops, or has died: Celery itself would let the run go on."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def announce(self) -> None:
        """In the parent: the pipe's end is the message."""
        with suppress(OSError):
            os.close(self._write)

    def watch(self, stop: Callable[[], None]) -> None:
        """In the measuring process: call `stop` when the message comes."""
        self.announce()  # our copy of the writing end

        def wait() -> None:
            os.read(self._read, 1)
            stop()

        threading.Thread(target=wait, name="shutdown", daemon=True).start()
