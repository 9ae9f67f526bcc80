"""The embedded Postgres: first start, restart, and every way in which its predecessor may have died."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg2
import pytest

from service.local.errors import DataInUseError, StartError
from service.local.placement import reachable_folder
from service.local.postgres import Durability, EmbeddedPostgres
from service.local.processes import unprivileged_account

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="kernelwatch-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def server(home: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(home, durability=Durability.SCRATCH)


def query(url: str, statement: str) -> list[tuple]:
    connection = psycopg2.connect(url.replace("+psycopg2", ""))
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_data_survives_a_restart(home):
    with server(home) as first:
        query(first.url(), "CREATE TABLE kept AS SELECT 42 AS answer")
    with server(home) as second:
        assert query(second.url(), "SELECT answer FROM kept") == [(42,)]


def test_never_runs_as_root_and_asks_for_a_password(home):
    with server(home) as running:
        owner = Path(f"/proc/{running.process.pid}").stat().st_uid
        assert owner != 0
        assert owner == (os.geteuid() or unprivileged_account().uid)
        with pytest.raises(psycopg2.OperationalError, match="password"):
            query(f"postgresql://kernelwatch:guess@127.0.0.1:{running.port}/kernelwatch", "SELECT 1")


def test_second_server_on_the_same_folder_is_refused_by_name(home):
    with server(home), pytest.raises(DataInUseError, match=f"in use by process {os.getpid()}"):
        server(home).start()


def test_killed_server_starts_again_at_the_same_port_with_its_data(home):
    running = server(home)
    url = running.start()
    query(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    running.process.kill()
    running.process.wait()
    running.stop()
    assert running.start() == url
    assert query(url, "SELECT answer FROM kept") == [(42,)]
    running.stop()


def test_stale_pid_file_whose_number_now_belongs_to_another_program_is_cleared(home):
    with server(home):
        pass
    cluster = reachable_folder(home, unprivileged_account()) / "cluster"
    (cluster / "postmaster.pid").write_text(f"{os.getpid()}\n{cluster}\n")
    with server(home) as running:
        assert query(running.url(), "SELECT 1") == [(1,)]


def test_interrupted_initdb_leaves_nothing_that_stops_the_next_start(home):
    half = home / "initdb-interrupted" / "cluster"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    with server(home) as running:
        assert query(running.url(), "SELECT 1") == [(1,)]
    assert not half.exists()


def test_files_of_another_major_version_are_refused_with_advice(home):
    with server(home):
        pass
    (reachable_folder(home, unprivileged_account()) / "cluster" / "PG_VERSION").write_text("12\n")
    with pytest.raises(StartError, match="made by Postgres 12"):
        server(home).start()


def test_occupied_port_is_replaced_by_a_free_one(home):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with EmbeddedPostgres(home, port=port, durability=Durability.SCRATCH) as running:
            assert running.port != port
            assert query(running.url(), "SELECT 1") == [(1,)]


def test_server_dies_with_a_killed_owner_and_the_next_owner_takes_over(home):
    script = (
        "import sys, time; from pathlib import Path; from service.local.postgres import *\n"
        f"s = EmbeddedPostgres(Path({str(home)!r}), durability=Durability.SCRATCH); s.start()\n"
        "print(s.process.pid, flush=True); time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    with server(home) as running:  # at once, while the old one may still be on its way out
        assert query(running.url(), "SELECT 1") == [(1,)]
        deadline = time.monotonic() + 20
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not Path(f"/proc/{pid}").exists()
