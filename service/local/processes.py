"""Child processes of this machine: who they run as, how they die, which port they take, what their log says."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from service.local.errors import DataInUseError, LocalError

GUARD = Path(__file__).with_name("guard.py")
# The accounts tried in turn when root must become somebody else. Not `nobody`: the runner's children may be that user,
# and whoever runs foreign code must not own the database's files.
ACCOUNTS = ("postgres", "daemon", "bin", "sys", "mail")


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine that a child process runs as."""

    name: str
    uid: int
    gid: int


def unprivileged_account() -> Account | None:
    """Whom to become for servers that must not run as root; None when we are an ordinary user already."""
    if os.geteuid() != 0:
        return None
    for name in ACCOUNTS:
        with contextlib.suppress(KeyError):
            found = pwd.getpwnam(name)
            return Account(name=name, uid=found.pw_uid, gid=found.pw_gid)
    raise LocalError(f"root must not run the database, and none of the users {', '.join(ACCOUNTS)} exists here")


def can_reach(path: Path, account: Account | None) -> bool:
    """Whether the account may enter `path` (a folder) or execute it (a file), asked of the kernel itself."""
    if account is None:
        return os.access(path, os.X_OK)
    probe = subprocess.run(
        ["/bin/sh", "-c", 'test -x "$1"', "sh", str(path)],
        user=account.uid,
        group=account.gid,
        extra_groups=[],
        cwd="/",
        check=False,
    )
    return probe.returncode == 0


def start_guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path,
    folder: Path = Path("/"),
    account: Account | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
    stdin: bytes | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in its own process group, its output appended to `log`, that dies when this process dies.

    Call it from the main thread: Linux sends the death signal when the *thread* that forked ends.
    """
    uid, gid = (account.uid, account.gid) if account else (-1, -1)
    wrapped = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(int(death_signal)), str(uid), str(gid)]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*wrapped, *command],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    if stdin is not None and process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(stdin)
    return process


def stop_process(
    process: subprocess.Popen[bytes], *, first: signal.Signals = signal.SIGTERM, patience_s: float = 10.0
) -> int:
    """Ask a child to end, wait, then kill its whole group; return its exit status."""
    if process.poll() is None:
        process.send_signal(first)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
    status = process.wait()
    kill_group(process.pid)  # what the child itself left behind in its group
    return status


def kill_group(leader: int) -> None:
    """SIGKILL every process of a group, if any is left."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could bind `port` now (a closed connection's TIME_WAIT does not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def tail(log: Path, *, lines: int = 15) -> str:
    """The last lines of a log, for an error message."""
    if not log.is_file():
        return "(no log)"
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 16_384))
        text = stream.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])


@contextlib.contextmanager
def exclusive(lock: Path, *, what: str) -> Iterator[None]:
    """Hold a lock file for the length of a block, or say who holds it.

    flock(2): the kernel gives the lock back when its holder dies however it dies, so no lock can be stale; the pid
    inside the file is only for the message.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "?"
            raise DataInUseError(f"{what} is in use by process {holder} ({lock}); stop that one first") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
