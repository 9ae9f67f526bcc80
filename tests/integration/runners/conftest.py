import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from runners.agent import Agent
from runners.client import ServiceClient
from runners.device.cpu.device import CpuDevice, Priority
from runners.job import Job, Workshop
from runners.sandbox import Limits
from runners.spool import Spool
from service.contract import ProtocolParams

from .hostile import GOOD_SUITE, hostile_kernel
from .stub_service import StubService, order

QUICK = ProtocolParams(processes=1, blocks=1, block_s=0.002, budget_s=30.0)


class Repository:
    """A real git repository whose suite has one good kernel and, on demand, a hostile one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", *identity, "-C", self.root, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def commit(self, files: dict[str, str | None], message: str = "change") -> str:
        """Write (or with None delete) files, commit, and return the commit's id."""
        for name, text in files.items():
            path = self.root / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def good(self) -> str:
        shutil.rmtree(self.root / "suite", ignore_errors=True)
        return self.commit(GOOD_SUITE, "good")

    def hostile(self, code: str) -> str:
        return self.commit(GOOD_SUITE | {"suite/hostile.py": hostile_kernel(code)}, "hostile")


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "source")


@pytest.fixture(scope="session")
def device(tmp_path_factory):
    return CpuDevice(state_dir=tmp_path_factory.mktemp("device"), priority=Priority.PLAIN)


@pytest.fixture
def workshop(tmp_path, device):
    return Workshop(
        device=device,
        cache_dir=tmp_path / "cache",
        limits=Limits(address_space_bytes=3 << 30, data_bytes=1 << 30, output_bytes=8 << 20, processes=64),
    )


@pytest.fixture
def measure(repository, workshop):
    """Carry an order for a commit out, as the agent does after a claim."""

    def run(sha: str, **more):
        fields = {"clone_url": str(repository.root), "protocol": QUICK} | more
        return Job(order(1, sha=sha, **fields), workshop, lambda *_: True).carry_out()

    return run


@pytest.fixture
def stub():
    service = StubService()
    yield service
    service.close()


@pytest.fixture
def agent_of(service, workshop, tmp_path):
    """Agents that talk to the real web application, registered with it under the name that they are asked for."""
    clients = []

    def make(name):
        client = ServiceClient(
            "http://service", service.runner(name), transport=httpx.WSGITransport(app=service.app), sleep=lambda _: None
        )
        clients.append(client)
        return Agent(
            service=client,
            spool=Spool(tmp_path / name / "spool"),
            work=lambda order, progress: Job(order, workshop, progress).carry_out(),
            lock_dir=tmp_path / name / "locks",
            device="cpu",
        )

    yield make
    for client in clients:
        client.close()
