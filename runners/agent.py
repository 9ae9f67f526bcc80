"""Claims a run, keeps its lease alive, carries it out, and sees its report through.

The lease is the service's: a heartbeat thread extends it, and when the service says that the run is no longer ours the
work stops and nothing is reported. Every report goes through the spool, so a crash after measuring loses nothing. While
the service is away a run that is being measured goes on: a late report is taken unless somebody else has the run.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import structlog
from structlog.contextvars import bound_contextvars

from runners.client import ReportOutcome, ServiceAwayError, ServiceRefusedError
from runners.errors import RunnerError
from runners.harness import HarnessChangedError
from runners.job import Progress
from runners.lock import device_lock
from runners.measure.epoch import HARNESS_EPOCH
from runners.measure.session import HoldLostError
from runners.spool import Spool
from service.contract import (
    CONTRACT_VERSION,
    FailureKind,
    FailureStage,
    Heartbeat,
    RunFailure,
    RunOrder,
    RunReport,
)

HEARTBEATS_PER_LEASE = 4
SHORTEST_BEAT_S = 0.2
LOG_CHARS = 8000
_log = structlog.get_logger()


class Outcome(StrEnum):
    """What became of one look for work."""

    NOTHING = "nothing"  # no run for us
    BUSY = "busy"  # another worker of this host has the device
    REPORTED = "reported"  # measured (or failed), and the service knows
    SPOOLED = "spooled"  # measured, and the report waits for the service
    LOST = "lost"  # the run was taken from us while we measured
    AWAY = "away"  # the service cannot be reached


class Service(Protocol):
    """What the agent asks of the service."""

    def claim(self, run_id: int | None) -> RunOrder | None:
        """Lease a run."""

    def heartbeat(self, beat: Heartbeat) -> bool:
        """Extend the lease."""

    def report(self, run_id: int, body: bytes) -> ReportOutcome:
        """Hand a report in."""


Work = Callable[[RunOrder, Progress], RunReport]


class Agent:
    """One runner on one device; `handle` is called for every ring of the bell and every poll."""

    def __init__(
        self,
        *,
        service: Service,
        spool: Spool,
        work: Work,
        lock_dir: Path,
        device: str,
        stopping: threading.Event | None = None,
        lock_patience_s: float = 0.0,
    ) -> None:
        self._service = service
        self._spool = spool
        self._work = work
        self._lock_dir = lock_dir
        self._device = device
        self._lock_patience_s = lock_patience_s
        self.stopping = stopping or threading.Event()

    def drain(self, run_id: int | None = None) -> Outcome:
        """Handle `run_id`, then whatever else is queued for the pool, until there is nothing left."""
        outcome = self.handle(run_id)
        while outcome in {Outcome.REPORTED, Outcome.LOST} and not self.stopping.is_set():
            following = self.handle(None)
            if following is Outcome.NOTHING:
                break
            outcome = following
        return outcome

    def handle(self, run_id: int | None) -> Outcome:
        """Take one run, if there is one and the device is free, to its report."""
        with device_lock(self._lock_dir, self._device, patience_s=self._lock_patience_s) as free:
            if not free:
                return Outcome.BUSY
            try:
                if not self._spool.flush(self._service):
                    return Outcome.AWAY
                order = self._service.claim(run_id)
                if order is None and run_id is not None:
                    order = self._service.claim(None)
            except ServiceAwayError as error:
                _log.warning("service is away", reason=str(error))
                return Outcome.AWAY
            except ServiceRefusedError as error:
                _log.error("claim refused", reason=str(error))
                return Outcome.AWAY
            if order is None:
                return Outcome.NOTHING
            with bound_contextvars(run=order.run_id, attempt=order.attempt, commit=order.sha[:12]):
                return self._take_through(order)

    def _take_through(self, order: RunOrder) -> Outcome:
        _log.info("run claimed", reason=str(order.reason), partners=len(order.partner_shas))
        started_at = time.time()
        with _Lease(order, self._service, self.stopping).kept() as lease:
            try:
                report = self._work(order, lease.progress)
            except HoldLostError:
                if not self.stopping.is_set():
                    _log.warning("run lost: another runner has it, or it was cancelled")
                    return Outcome.LOST
                failure = RunFailure(FailureStage.MEASURE, FailureKind.TRANSIENT, "the runner was stopped")
                report = _failed(order, failure, started_at)
            except HarnessChangedError as error:
                self.stopping.set()  # what this process measured from now on could not be believed
                report = _failed(order, RunFailure(FailureStage.MEASURE, error.kind, str(error)), started_at)
            except RunnerError as error:
                report = _failed(order, RunFailure(FailureStage.MEASURE, error.kind, str(error)), started_at)
            except Exception as error:  # noqa: BLE001 - an error of ours must reach the service, not kill the runner
                _log.exception("bug in the runner")
                reason, tail = f"{type(error).__name__}: {error}", traceback.format_exc()[-LOG_CHARS:]
                report = _failed(order, RunFailure(FailureStage.MEASURE, FailureKind.BUG, reason, tail), started_at)
        self._spool.put(report)
        _log.info(
            "run measured",
            measurements=len(report.measurements),
            failed_commits=len(report.commit_failures),
            failure=report.failure.reason if report.failure else None,
            seconds=round(report.finished_at - report.started_at, 1),
        )
        return Outcome.REPORTED if self._spool.flush(self._service) else Outcome.SPOOLED


class _Lease:
    """A held run: beats in a thread of its own, and knows whether it is still held."""

    def __init__(self, order: RunOrder, service: Service, stopping: threading.Event) -> None:
        self._order = order
        self._service = service
        self._stopping = stopping
        self._ended = threading.Event()
        self._lost = threading.Event()
        self._stage: tuple[str, int, int] = ("checkout", 0, 0)

    def progress(self, stage: str, done: int, total: int) -> bool:
        """Note how far the work is; False when it should stop."""
        self._stage = (stage, done, total)
        return not self._lost.is_set() and not self._stopping.is_set()

    @contextmanager
    def kept(self) -> Iterator[_Lease]:
        """Beat until the block ends."""
        beats = threading.Thread(target=self._beat, name=f"heartbeat-{self._order.run_id}", daemon=True)
        beats.start()
        try:
            yield self
        finally:
            self._ended.set()
            beats.join()

    def _beat(self) -> None:
        pause_s = max(SHORTEST_BEAT_S, self._order.lease_s / HEARTBEATS_PER_LEASE)
        while True:
            stage, done, total = self._stage
            beat = Heartbeat(self._order.run_id, self._order.lease_token, stage, done, total)
            try:
                held = self._service.heartbeat(beat)
            except ServiceAwayError as error:
                _log.warning("heartbeat not heard", run=self._order.run_id, reason=str(error))
                held = True
            except ServiceRefusedError as error:
                _log.warning("heartbeat refused", run=self._order.run_id, reason=str(error))
                held = False
            if not held:
                self._lost.set()
            if self._ended.wait(pause_s) or not held:
                return


def _failed(order: RunOrder, failure: RunFailure, started_at: float) -> RunReport:
    return RunReport(
        contract_version=CONTRACT_VERSION,
        run_id=order.run_id,
        attempt=order.attempt,
        lease_token=order.lease_token,
        started_at=started_at,
        finished_at=time.time(),
        device_s=0.0,
        harness_epoch=HARNESS_EPOCH,
        environment=None,
        failure=failure,
    )
