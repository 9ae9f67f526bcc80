"""The composition root of a device host: a Celery worker that hears the doorbell, and a poller for when nobody rings.

One prefork child does everything: the task `runners.measure` and the poller both call `Agent.drain`, and only one of
them at a time. The message is a doorbell and nothing else: a second copy finds the lease taken. If the broker is away,
or was never given, the poller alone keeps the runner at work over HTTP.
"""

from __future__ import annotations

import logging
import random
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from celery import Celery
from celery.signals import setup_logging, worker_process_init, worker_process_shutdown

from runners.agent import Agent, Outcome
from runners.client import ServiceClient
from runners.device import open_device
from runners.identity import RunnerIdentity
from runners.job import Job, Progress, Workshop
from runners.sandbox import Limits
from runners.scratch import remove_stale
from runners.spool import Spool
from service.contract import RunOrder, RunReport

TASK = "runners.measure"
POLL_S = 15.0
VISIBILITY_TIMEOUT_S = 7200  # above the longest run: a lost run comes back by its lease, not by the broker
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Where a runner keeps things and how it is limited."""

    state_dir: Path
    cache_dir: Path
    lock_dir: Path
    broker_url: str | None = None
    poll_s: float = POLL_S
    memory_bytes: int = 6 << 30
    cpu: int | None = None


def build_agent(config: WorkerConfig, *, stopping: threading.Event | None = None) -> Agent:
    """Wire an agent from its registration; raises NotRegisteredError."""
    identity = RunnerIdentity.load(config.state_dir)
    device = open_device(identity.device, state_dir=config.state_dir, cpu=config.cpu)
    on_gpu = identity.device != "cpu"
    workshop = Workshop(
        device=device,
        cache_dir=config.cache_dir,
        limits=Limits(
            address_space_bytes=None if on_gpu else config.memory_bytes,
            data_bytes=config.memory_bytes,
        ),
        device_files=tuple(Path("/dev").glob("nvidia*")) if on_gpu else (),
    )

    def work(order: RunOrder, progress: Progress) -> RunReport:
        return Job(order, workshop, progress).carry_out()

    return Agent(
        service=ServiceClient(identity.url, identity.token),
        spool=Spool(config.state_dir / "spool"),
        work=work,
        lock_dir=config.lock_dir,
        device=identity.device if config.cpu is None else f"{identity.device}-{config.cpu}",
        stopping=stopping,
    )


class Doorbell:
    """Lets the task and the poller share one agent, one at a time, in the process that measures."""

    def __init__(self, config: WorkerConfig) -> None:
        self._config = config
        self._one_at_a_time = threading.Lock()
        self._stopping = threading.Event()
        self._agent: Agent | None = None

    def open(self) -> None:
        """Start polling; called in the process that measures, after it was forked."""
        cache_dir = self._config.cache_dir
        removed = sum(remove_stale(root) for root in (cache_dir / "scratch", *(cache_dir / "worktrees").glob("*")))
        if removed:
            _log.info("removed what a crash left", folders=removed)
        threading.Thread(target=self.poll_until_stopped, name="poll", daemon=True).start()

    def close(self) -> None:
        """Stop at the next opportunity; the run in hand is given back."""
        self._stopping.set()

    def ring(self, run_id: int | None) -> Outcome:
        """Look for work now, unless that is being done already."""
        if not self._one_at_a_time.acquire(blocking=False):
            return Outcome.BUSY  # whoever is at it looks again before it stops
        try:
            if self._agent is None:
                self._agent = build_agent(self._config, stopping=self._stopping)
            return self._agent.drain(run_id)
        finally:
            self._one_at_a_time.release()

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

    def on_init(**_: object) -> None:
        doorbell.open()

    def on_shutdown(**_: object) -> None:
        doorbell.close()

    def on_logging(**_: object) -> None:
        logging.getLogger("celery").setLevel(logging.INFO)

    worker_process_init.connect(on_init, weak=False)
    worker_process_shutdown.connect(on_shutdown, weak=False)
    setup_logging.connect(on_logging, weak=False)  # its presence keeps Celery from arranging logging anew
    app.Worker(pool="prefork", concurrency=1, without_gossip=True, without_mingle=True, without_heartbeat=True).start()
