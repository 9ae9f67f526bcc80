"""Reports wait on disk until the service has taken them, so that neither side's crash loses a measurement.

A report is written to a private file, synced, and renamed into place; its name carries the order of writing, the run
and the attempt, so that writing it again replaces it. It leaves the folder only when the service has answered.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import structlog

from runners.client import ReportOutcome, ServiceAwayError, ServiceRefusedError, dump_report, load_report
from service.contract import FailureKind, FailureStage, RunFailure, RunReport

REASON_CHARS = 500
_UNSTORABLE = {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
_log = structlog.get_logger()


class Receiver(Protocol):
    """Whoever takes reports."""

    def report(self, run_id: int, body: bytes) -> ReportOutcome:
        """Hand one in."""


@dataclass(frozen=True, slots=True)
class SpooledReport:
    """One file of the spool."""

    path: Path
    run_id: int
    attempt: int


class Spool:
    """A folder of reports on their way."""

    def __init__(self, folder: Path, *, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put(self, report: RunReport) -> Path:
        """Keep a report; the same run and attempt twice is kept once."""
        for known in self.waiting():
            if (known.run_id, known.attempt) == (report.run_id, report.attempt):
                target = known.path
                break
        else:
            target = self._folder / f"{int(self._now() * 1e6):017d}-{report.run_id}-{report.attempt}.json"
        self._write(target, report)
        return target

    def waiting(self) -> list[SpooledReport]:
        """What is still to be sent, oldest first."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            _, run_id, attempt = path.stem.split("-")
            found.append(SpooledReport(path, int(run_id), int(attempt)))
        return found

    def flush(self, receiver: Receiver) -> bool:
        """Send everything in order; False when the service is away and something still waits."""
        with self._alone() as alone:
            if not alone:
                return True  # another worker of this runner is sending
            return all(self._send(report, receiver) for report in self.waiting())

    def _send(self, report: SpooledReport, receiver: Receiver) -> bool:
        log = _log.bind(run=report.run_id, attempt=report.attempt)
        try:
            outcome = receiver.report(report.run_id, report.path.read_bytes())
        except FileNotFoundError:
            return True  # sent by another worker just now
        except ServiceAwayError as error:
            log.warning("report waits", reason=str(error))
            return False
        except ServiceRefusedError as error:
            if error.status in {401, 403}:
                log.warning("report waits: this runner is not let in", reason=str(error))
                return False
            if self._say_why_instead(report, error):
                log.warning("report refused; its failure is handed in instead", reason=str(error))
                return self._send(report, receiver)
            log.warning("report dropped", reason=str(error))
        else:
            if outcome is ReportOutcome.SUPERSEDED:
                log.warning("report dropped", reason="another attempt owns the run")
            else:
                log.info("report handed in", outcome=str(outcome))
        report.path.unlink(missing_ok=True)
        self._sync_folder()
        return True

    def _say_why_instead(self, report: SpooledReport, error: ServiceRefusedError) -> bool:
        """Replace a report that the service cannot store by one that says so; False when it already was that."""
        try:
            refused = load_report(report.path.read_bytes())
        except ValueError:
            return False
        if error.status not in _UNSTORABLE or not (refused.measurements or refused.commit_failures):
            return False
        reason = f"the service could not store the report: {error.detail}"[:REASON_CHARS]
        failure = RunFailure(FailureStage.MEASURE, FailureKind.BUG, reason)
        self._write(report.path, replace(refused, measurements=(), commit_failures=(), flags=(), failure=failure))
        return True

    def _write(self, target: Path, report: RunReport) -> None:
        draft = target.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as file:
            file.write(dump_report(report))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        self._sync_folder()

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        with (self._folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
