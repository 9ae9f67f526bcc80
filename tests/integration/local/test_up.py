"""`kernelwatch up` as a person meets it: it starts, repairs itself, refuses a twin, ends cleanly, survives kill -9."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil
import pytest

ROOT = Path(__file__).parents[3]
PATIENCE_S = 240

pytestmark = pytest.mark.slow


class Up:
    """One `kernelwatch up` in a data folder, its words kept."""

    def __init__(self, home: Path, *arguments: str):
        self.said = home / "said"
        environment = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "REDIS_URL"}}
        with self.said.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "up", "--data-dir", home / "data", "--port", "0", *arguments],
                cwd=ROOT,
                env={**environment, "KERNELWATCH_CACHE_DIR": str(home / "cache")},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def words(self) -> str:
        return self.said.read_text()

    def url(self) -> str:
        wait_for(lambda: "kernelwatch is up" in self.words() or self.process.poll() is not None, self.words)
        found = re.search(r"kernelwatch is up: (\S+)", self.words())
        assert found, self.words()
        return found[1]

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, words: str) -> psutil.Process | None:
        """The living direct child whose command line holds these words."""
        for process in psutil.Process(self.process.pid).children():
            if process.status() != psutil.STATUS_ZOMBIE:
                line = " ".join(process.cmdline())
                if words in line and "guard.py" not in line:
                    return process
        return None

    def end(self, number=signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def wait_for(condition, explain=lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"it did not happen: {explain()}")


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def left_of(family: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="kernelwatch-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def test_repairs_itself_refuses_a_twin_and_ends_cleanly(home):
    up = Up(home, "--no-runner")
    try:
        url = up.url()
        assert answers(f"{url}/readyz")
        assert answers(url)

        twin = subprocess.run(
            [sys.executable, "-m", "service.cli", "up", "--data-dir", home / "data", "--port", "0"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert twin.returncode == 1
        assert f"in use by process {up.process.pid}" in twin.stderr
        assert "Traceback" not in twin.stderr

        for words in ("gunicorn", "valkey-server", "postgres -D", "celery_app worker"):
            before = up.child(words)
            before.kill()
            wait_for(lambda words=words, before=before: up.child(words) not in {None, before}, up.words)
            wait_for(lambda: answers(f"{url}/readyz"), up.words)
        assert len(re.findall(r"signal SIGKILL\); starting it again", up.words())) == 4

        family = up.family()
        assert len(family) > 6
        assert up.end() == 0
        assert "everything has stopped" in up.words()
        assert left_of(family) == []
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGKILL)


def test_kill_9_leaves_nothing_running_and_nothing_broken(home):
    up = Up(home)
    try:
        url = up.url()
        family = up.family()
        up.end(signal.SIGKILL)
        wait_for(lambda: left_of(family) == [], lambda: str(left_of(family)))
        again = Up(home)
        try:
            assert again.url() == url or "is taken" not in again.words()
            assert answers(f"{again.url()}/readyz")
        finally:
            family = again.family()
            assert again.end(signal.SIGTERM) == 0
        assert left_of(family) == []
    finally:
        if up.process.poll() is None:
            up.end(signal.SIGKILL)


def test_chosen_port_that_is_taken_is_an_error_that_says_so(home):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "service.cli", "up", "--data-dir", home / "data", "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 1
    assert f"port {port} is taken" in done.stderr
