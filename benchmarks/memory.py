"""Resident memory of each process of the service while the demo's first push is measured, against its budget.

Starts the whole service on scratch data, orders one run of the demo's repository, samples every process until the run
is over, and prints the largest sum of each role's processes, the measured child apart. Exits 1 if one is over budget.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from service.local.demo.run import Driver
from service.local.placement import erase
from service.local.stack import Stack, StackOptions
from service.local.supervisor import terminal_says
from service.settings import Settings

BUDGET_MB = {"web": 200, "worker": 250, "runner": 150}
MARKS = {"web": "service.wsgi", "worker": "celery_app worker", "runner": "runner serve"}
CHILD_MARK = "runners.measure.child"
EVERY_S = 0.25


def resident_mb() -> dict[str, float]:
    """Megabytes per role, summed over its processes; the measured child and its forks are left out."""
    found = dict.fromkeys(BUDGET_MB, 0.0)
    for child in psutil.Process().children():
        try:
            line = " ".join(child.cmdline())
            role = next((name for name, mark in MARKS.items() if mark in line), None)
            if role is None:
                continue
            for process in (child, *child.children(recursive=True)):
                if CHILD_MARK not in " ".join(process.cmdline()):
                    found[role] += process.memory_full_info().pss / 1e6
        except psutil.NoSuchProcess:
            continue
    return found


def main() -> int:
    """Measure and print; 1 if a budget is exceeded."""
    home = Path(tempfile.mkdtemp(prefix="kernelwatch-memory-"))
    home.chmod(0o711)
    settings = Settings(data_dir=home, cache_dir=home / "cache", port=0, database_url=None, redis_url=None)
    peak = dict.fromkeys(BUDGET_MB, 0.0)
    try:
        with Stack(settings, StackOptions(), say=terminal_says) as stack:
            driver = Driver(settings, stack)
            thread = threading.Thread(target=driver.first_push)
            thread.start()

            def sample() -> bool:
                for role, mb in resident_mb().items():
                    peak[role] = max(peak[role], mb)
                time.sleep(EVERY_S)
                return not thread.is_alive()

            stack.serve(finished=sample)
            driver.stopping.set()
            thread.join()
    finally:
        for server in ("postgres", "broker"):
            erase(home / server)
        shutil.rmtree(home)
    for role, mb in peak.items():
        terminal_says(f"{role:<8}{mb:6.0f} MB  (budget {BUDGET_MB[role]} MB)")
    return 1 if any(mb > BUDGET_MB[role] for role, mb in peak.items()) else 0


if __name__ == "__main__":
    sys.exit(main())
