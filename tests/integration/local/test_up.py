"""`kernelwatch up` as a person meets it: it starts, repairs itself, refuses a twin, ends cleanly, survives kill -9."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.running import PATIENCE_S, ROOT, Up, answers, left_of, wait_for

pytestmark = pytest.mark.slow


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
