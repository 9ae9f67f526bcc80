"""Keep a handful of processes alive until somebody says stop.

Members start in the given order and stop in the reverse one. A member that ends is started again after a pause that
doubles from half a second to half a minute while it keeps failing, and is forgotten once it lived for a while. Ctrl-C
and SIGTERM stop everything in order; a second Ctrl-C kills. If the supervisor itself is killed, the kernel ends the
members (see `guard`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from service.local.errors import LocalError, StartError
from service.local.processes import kill_group, start_guarded, stop_process, tail

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
SETTLED_S = 30.0  # a member that lived this long has recovered
TICK_S = 0.1
LOG_LIMIT_BYTES = 20_000_000


class Supervised(Protocol):
    """What the supervisor can start, watch and stop."""

    @property
    def name(self) -> str:
        """The word that messages and the log file use."""

    def start(self) -> None:
        """Start it; raise LocalError when that fails."""

    def poll(self) -> int | None:
        """The exit status if it has ended, else None."""

    def stop(self) -> None:
        """End it and everything it started."""


class Server(Protocol):
    """An embedded server: Postgres or the broker."""

    port: int | None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """Its process while it runs."""

    def start(self) -> str:
        """Start it and return its URL."""

    def stop(self) -> None:
        """End it."""


class EmbeddedServer:
    """An embedded server as a member: after a crash it comes back at the same address."""

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self.url: str | None = None  # known once it has started
        self._server = server

    def start(self) -> None:
        """Start the server (again); a new address would cut everybody off, so it is an error."""
        port = self._server.port
        self._server.stop()
        self.url = self._server.start()
        if port not in {None, self._server.port}:
            self._server.stop()
            self._server.port = port
            raise StartError(f"{self.name} lost its port to another program; it tries again")

    def poll(self) -> int | None:
        """The server's exit status if it has ended."""
        return self._server.process.poll() if self._server.process else None

    def stop(self) -> None:
        """Shut it down in order."""
        self._server.stop()


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """How one process is run."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    stop_signal: signal.Signals = signal.SIGTERM
    patience_s: float = 10.0


class ChildProcess:
    """A process of ours as a member; its output goes to `<logs>/<name>.log`."""

    def __init__(self, spec: ProcessSpec, *, logs: Path) -> None:
        self.spec = spec
        self.log = logs / f"{spec.name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """The process's name."""
        return self.spec.name

    def start(self) -> None:
        """Start it; a log that has grown too long is put aside first."""
        if self.log.is_file() and self.log.stat().st_size > LOG_LIMIT_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        self.process = start_guarded(
            self.spec.command,
            environment=self.spec.environment,
            log=self.log,
            # Without its broker a Celery worker may hang in an orderly shutdown; every task survives a kill.
            death_signal=signal.SIGKILL,
        )

    def poll(self) -> int | None:
        """The exit status if it has ended."""
        return self.process.poll() if self.process else None

    def stop(self) -> None:
        """Ask it to end, wait, then kill its group."""
        if self.process is not None:
            stop_process(self.process, first=self.spec.stop_signal, patience_s=self.spec.patience_s)
            self.process = None

    def run_to_end(self) -> None:
        """Start it and wait; raise with the end of its log unless it succeeds."""
        self.start()
        assert self.process is not None
        status = self.process.wait()
        self.process = None
        if status != 0:
            raise StartError(f"{self.name} failed with status {status}; the end of {self.log}:\n{tail(self.log)}")


@dataclass(slots=True)
class _Watch:
    """What the supervisor remembers of a member."""

    member: Supervised
    started_at: float = 0.0
    failures: int = 0
    retry_at: float | None = None  # None while it runs


@dataclass(slots=True)
class Supervisor:
    """Watches members; `say` tells the person at the terminal."""

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    stopping: bool = False
    _watched: list[_Watch] = field(default_factory=list)

    def add(self, member: Supervised) -> None:
        """Start a member and keep it alive from now on."""
        watch = _Watch(member)
        self._watched.append(watch)
        member.start()
        watch.started_at = self.clock()

    def tick(self) -> None:
        """Notice what has ended and start what is due."""
        for watch in self._watched:
            now = self.clock()
            if watch.retry_at is not None:
                if now >= watch.retry_at:
                    self._restart(watch)
            elif (status := watch.member.poll()) is not None:
                self._schedule(watch, f"ended ({describe_status(status)})")

    def run(self, finished: Callable[[], bool]) -> None:
        """Keep everything alive until `finished()` or a request to stop."""
        while not self.stopping and not finished():
            self.tick()
            self.sleep(TICK_S)

    def stop_all(self) -> None:
        """Stop every member, last started first."""
        while self._watched:
            member = self._watched.pop().member
            with suppress(OSError):  # the terminal may be gone: no reason to leave a process behind
                self.say(f"stopping {member.name}")
            member.stop()

    def request_stop(self, number: int, _frame: FrameType | None) -> None:
        """Signal handler: the first asks for an orderly stop, the second kills what is left."""
        if self.stopping and number == signal.SIGINT:
            self.say("killed")
            for watch in self._watched:
                process = getattr(watch.member, "process", None)
                if process is not None:
                    kill_group(process.pid)
            os._exit(130)
        if not self.stopping:
            self.stopping = True
            with suppress(OSError, RuntimeError):  # no terminal; or the signal came in the middle of another line
                self.say("stopping ... (Ctrl-C again kills)")

    def listen(self) -> None:
        """Take Ctrl-C and SIGTERM as requests to stop."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.request_stop)

    def _restart(self, watch: _Watch) -> None:
        try:
            watch.member.stop()
            watch.member.start()
        except LocalError as error:
            self._schedule(watch, f"did not start: {error}")
            return
        watch.retry_at = None
        watch.started_at = self.clock()
        self.say(f"{watch.member.name} runs again")

    def _schedule(self, watch: _Watch, what: str) -> None:
        now = self.clock()
        if watch.retry_at is None and now - watch.started_at > SETTLED_S:
            watch.failures = 0
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**watch.failures)
        watch.failures += 1
        watch.retry_at = now + pause_s
        self.say(f"{watch.member.name} {what}; starting it again in {pause_s:g} s")


def describe_status(status: int) -> str:
    """An exit status in words: `status 1`, `signal SIGKILL`."""
    if status >= 0:
        return f"status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def terminal_says(text: str) -> None:
    """One line on stdout, at once, even into a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
