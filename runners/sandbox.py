"""Starts a process that runs a stranger's code, and speaks with it: one JSON object per line, each way.

The process is locked in by `runners.confine` (namespaces, an unprivileged user, Landlock, seccomp, limits). Here is the
runner's side: requests with time-outs, a cap on what the process may print or answer, and an end that leaves nothing
running, even when the runner itself is killed (the launcher then reads the end of its lifeline pipe).
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import runners
from runners.confine.spec import REQUESTS_FD, RESULTS_FD, SANDBOX_UID, Spec
from runners.errors import ChildDiedError, ChildError, ChildGarbageError, ChildTimedOutError, SandboxError
from runners.scratch import HeldDir
from runners.utterance import KeptLog, describe_exit, finite_number

CHILD_COMMAND = (
    *("-P", "-m", "runners.measure.child"),
    *("--requests-fd", str(REQUESTS_FD), "--replies-fd", str(RESULTS_FD)),
)
COMPILER_COMMAND = (
    *(sys.executable, "-P", "-m", "runners.measure.compile_child"),
    *("--requests-fd", str(REQUESTS_FD), "--replies-fd", str(RESULTS_FD)),
)
START_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 16
_CREDENTIALS = struct.Struct("3i")
_FIRST_CREDENTIALS_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one sandboxed process may use; `address_space_bytes` is None for CUDA, which reserves far more than that."""

    address_space_bytes: int | None = 6 << 30
    data_bytes: int = 6 << 30
    file_bytes: int = 1 << 30
    cpu_s: int = 1800
    processes: int = 256
    open_files: int = 1024
    output_bytes: int = 16 << 20
    line_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one sandboxed process may reach, besides the system's libraries and the installed environment."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()


def harness_root() -> Path:
    """The folder that holds the installed `runners` package."""
    return Path(runners.__file__).resolve().parent.parent


def interpreter_paths() -> tuple[str, ...]:
    """Folders without which this Python and this harness cannot start."""
    executable = Path(sys.executable)
    found = [Path(sys.prefix), Path(sys.base_prefix), executable.parent, harness_root()]
    found += [path.resolve() for path in (*found, executable.resolve().parent)]
    return tuple(dict.fromkeys(str(path) for path in found if path != Path("/")))


def clean_environment(scratch: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a sandboxed process: built from nothing, so no address, token or path leaks in."""
    environment = {
        "PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "USER": "kernelwatch-sandbox",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "CUDA_CACHE_PATH": str(scratch / "cuda"),
        "CUPY_CACHE_DIR": str(scratch / "cupy"),
    }
    root = harness_root()
    if not root.is_relative_to(sys.prefix):
        environment["PYTHONPATH"] = str(root)  # a checkout; an installed harness is found without help
    return environment | dict(extra or {})


def spawn(
    *,
    access: Access,
    limits: Limits,
    scratch_root: Path,
    command: Sequence[str] = (),
    extra_environment: Mapping[str, str] | None = None,
    working_dir: Path | None = None,
) -> Child:
    """Start `command` (by default the measuring child) locked in; raises SandboxError when that cannot be done."""
    scratch = HeldDir(scratch_root, "run")
    try:
        scratch.make()
        return Child(
            scratch=scratch,
            access=access,
            limits=limits,
            command=tuple(command) or (sys.executable, *CHILD_COMMAND),
            environment=clean_environment(scratch.path, extra_environment),
            working_dir=working_dir or scratch.path,
        )
    except BaseException:
        scratch.remove()
        raise


class Child:
    """A locked-in process; `request` asks it, `close` ends it with everything it started."""

    def __init__(
        self,
        *,
        scratch: HeldDir,
        access: Access,
        limits: Limits,
        command: tuple[str, ...],
        environment: dict[str, str],
        working_dir: Path,
    ) -> None:
        self._limits = limits
        self._scratch = scratch
        self._results = b""
        self._log = KeptLog(limits.output_bytes)
        self._status = b""
        self._exit_code: int | None = None
        self._verdict: str | None = None
        self._pid: int | None = None
        self._closed = False
        self.facts: dict[str, str] = {}

        requests_read, self._requests_fd = os.pipe()
        self._results_fd, results_write = os.pipe()
        self._log_fd, log_write = os.pipe()
        lifeline_read, self._lifeline_fd = os.pipe()
        self._status_socket, status_write = socket.socketpair()
        self._status_socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        os.set_blocking(self._requests_fd, False)
        spec = Spec(
            command=command,
            environment=environment,
            working_dir=str(working_dir),
            read=(*interpreter_paths(), *map(str, access.read)),
            write=(str(scratch.path), *map(str, access.write)),
            devices=tuple(map(str, access.devices)),
            requests_fd=requests_read,
            results_fd=results_write,
            status_fd=status_write.fileno(),
            lifeline_fd=lifeline_read,
            address_space_bytes=limits.address_space_bytes,
            data_bytes=limits.data_bytes,
            file_bytes=limits.file_bytes,
            cpu_s=limits.cpu_s,
            processes=limits.processes,
            open_files=limits.open_files,
            drop_to_uid=SANDBOX_UID if os.geteuid() == 0 else None,
        )
        inherited = (requests_read, results_write, status_write.fileno(), lifeline_read)
        try:
            self._launcher = subprocess.Popen(
                [sys.executable, "-S", "-P", "-m", "runners.confine", spec.dumps()],
                stdin=subprocess.DEVNULL,
                stdout=log_write,
                stderr=log_write,
                env={"PYTHONPATH": str(harness_root()), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin"},
                cwd="/",
                pass_fds=inherited,
                start_new_session=True,
            )
        finally:
            for descriptor in (requests_read, results_write, lifeline_read, log_write):
                os.close(descriptor)
            status_write.close()
        self._open = {self._results_fd, self._log_fd, self._status_socket.fileno()}
        self._await_start()

    @property
    def pid(self) -> int:
        """The locked-in process as this process sees it: what is pinned and watched."""
        if self._pid is None:
            raise SandboxError("the sandboxed process has not started")
        return self._pid

    @property
    def log_tail(self) -> str:
        """The beginning and the end of what the process printed."""
        return self._log.text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, message: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send one object and wait for the one that answers it: it must carry the request's `id`.

        Raises ChildDiedError, ChildTimedOutError or ChildGarbageError; after any of them the process is gone.
        """
        if self._closed:
            raise ChildDiedError("the process has already been ended", self.log_tail)
        deadline_s = time.monotonic() + timeout_s
        what = str(message.get("op", "request"))
        self._read_ready(0.0)
        if self._results:
            raise self._fail(ChildGarbageError, "the process answered before it was asked")
        number = secrets.token_hex(8)
        self._send(json.dumps({**message, "id": number}).encode() + b"\n", deadline_s, what)
        while b"\n" not in self._results:
            self._pump(deadline_s, what, timeout_s)
            if len(self._results) > self._limits.line_bytes:
                raise self._fail(ChildGarbageError, f"an answer is longer than {self._limits.line_bytes >> 20} MiB")
        line, _, self._results = self._results.partition(b"\n")
        try:
            answer = json.loads(line, parse_float=finite_number, parse_constant=finite_number)
        except (ValueError, RecursionError) as error:
            raise self._fail(ChildGarbageError, "an answer on the result channel is not JSON") from error
        if not isinstance(answer, dict):
            raise self._fail(ChildGarbageError, "an answer on the result channel is not a JSON object")
        if answer.pop("id", None) != number:
            raise self._fail(ChildGarbageError, "an answer on the result channel was not asked for")
        return answer

    def finish(self, *, timeout_s: float) -> int:
        """Wait until the process ends by itself; its exit code (negative: the signal)."""
        deadline_s = time.monotonic() + timeout_s
        while self._exit_code is None and self._status_socket.fileno() in self._open:
            self._pump(deadline_s, "the command", timeout_s, results_may_end=True)
        code = self._exit_code
        self.close()
        if code is None:
            raise ChildDiedError(self._verdict or "the sandbox was killed from outside", self.log_tail)
        return code

    def close(self) -> None:
        """End the process and all it started; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        os.close(self._lifeline_fd)
        with suppress(OSError):
            os.close(self._requests_fd)
        self._drain_until_end()
        for descriptor in (self._results_fd, self._log_fd):
            os.close(descriptor)
        self._status_socket.close()
        self._scratch.remove()

    def _await_start(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while self._pid is None:
            alive = self._status_socket.fileno() in self._open
            if not alive or (not self._read_ready(deadline_s) and time.monotonic() >= deadline_s):
                self.close()
                raise SandboxError(f"the sandbox did not start: {self.log_tail or 'no word of it'}")

    def _send(self, line: bytes, deadline_s: float, what: str) -> None:
        view = memoryview(line)
        while view:
            try:
                view = view[os.write(self._requests_fd, view) :]
            except BlockingIOError:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not select.select([], [self._requests_fd], [], left_s)[1]:
                    raise self._fail(ChildTimedOutError, f"the process does not read its requests ({what})") from None
            except BrokenPipeError:
                raise self._died() from None

    def _pump(self, deadline_s: float, what: str, timeout_s: float, *, results_may_end: bool = False) -> None:
        """Take in whatever is there, waiting at most until the deadline; raise for every kind of bad end."""
        if not self._read_ready(deadline_s) and time.monotonic() >= deadline_s:
            raise self._fail(ChildTimedOutError, f"no answer to {what!r} within {timeout_s:.0f} s")
        if self._log.overflowed:
            raise self._fail(ChildGarbageError, f"it printed more than {self._limits.output_bytes >> 20} MiB")
        if not results_may_end and self._results_fd not in self._open and b"\n" not in self._results:
            raise self._died()

    def _read_ready(self, deadline_s: float) -> bool:
        left_s = max(0.0, deadline_s - time.monotonic())
        ready = select.select(list(self._open), [], [], left_s)[0]
        for descriptor in ready:
            if descriptor == self._results_fd:
                part = os.read(descriptor, _CHUNK_BYTES)
                if len(self._results) <= self._limits.line_bytes:
                    self._results += part
            elif descriptor == self._log_fd:
                part = os.read(descriptor, _CHUNK_BYTES)
                self._log.add(part)
            else:
                part = self._read_status()
            if not part:
                self._open.discard(descriptor)
        return bool(ready)

    def _read_status(self) -> bytes:
        """A line of the launcher or the supervisor; the kernel says who wrote it, in our own process numbers."""
        part, ancillary, _, _ = self._status_socket.recvmsg(_CHUNK_BYTES, _FIRST_CREDENTIALS_BYTES)
        writer = 0
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                writer = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
        *lines, self._status = (self._status + part).split(b"\n")
        for line in lines:
            status = json.loads(line)
            if "facts" in status:
                self.facts, self._pid = status["facts"], writer
            elif "error" in status:
                self._log.add(status["error"].encode() + b"\n")
            elif "killed" in status:
                self._verdict = status["killed"]
            else:
                self._exit_code = status["exit"]
        return part

    def _fail(self, kind: type[ChildError], reason: str) -> ChildError:
        self.close()
        return kind(reason, self.log_tail)

    def _died(self) -> ChildDiedError:
        deadline_s = time.monotonic() + 1.0
        while self._exit_code is None and self._status_socket.fileno() in self._open:
            if not self._read_ready(deadline_s):
                break
        code = self._exit_code
        self.close()
        return ChildDiedError(self._verdict or describe_exit(code), self.log_tail)

    def _drain_until_end(self) -> None:
        """Let the supervisor kill what is left, reading on so that nobody blocks; then insist."""
        deadline_s = time.monotonic() + END_TIMEOUT_S
        while self._status_socket.fileno() in self._open and time.monotonic() < deadline_s:
            self._read_ready(deadline_s)
        try:
            self._launcher.wait(timeout=max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._launcher.pid, signal.SIGKILL)
            self._launcher.wait()


def protection_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """The walls that held, as facts of the environment."""
    return {f"sandbox_{name}": value for name, value in facts.items()}
