"""A `kernelwatch up` of its own for a test: its words, its processes, its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).parents[1]
PATIENCE_S = 240


class Up:
    """One `kernelwatch up` in a data folder, its words kept."""

    def __init__(self, home: Path, *arguments: str, **variables: str):
        self.said = home / "said"
        environment = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "REDIS_URL"}}
        with self.said.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "up", "--data-dir", home / "data", "--port", "0", *arguments],
                cwd=ROOT,
                env={**environment, "KERNELWATCH_CACHE_DIR": str(home / "cache"), **variables},
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

    def descendant(self, words: str) -> psutil.Process | None:
        """The living process below this one whose command line holds these words."""
        for process in self.family():
            try:
                line = " ".join(process.cmdline())
            except psutil.NoSuchProcess:
                continue
            if words in line and "guard.py" not in line:
                return process
        return None

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
