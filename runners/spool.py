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
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from runners.client import ReportOutcome, ServiceAwayError, ServiceRefusedError, dump_report
from service.contract import RunReport

_DROPPED = {
    ReportOutcome.SUPERSEDED: "another attempt owns the run",
    ReportOutcome.INVALID: "the service does not accept it",
}
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
        draft = target.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as file:
            file.write(dump_report(report))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        self._sync_folder()
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
            log.warning("report dropped", reason=str(error))
        else:
            if outcome in _DROPPED:
                log.warning("report dropped", reason=_DROPPED[outcome])
            else:
                log.info("report handed in", outcome=str(outcome))
        report.path.unlink(missing_ok=True)
        self._sync_folder()
        return True

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
