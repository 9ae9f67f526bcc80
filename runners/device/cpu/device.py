"""The CPU as a device: one core for the job, the harness on the others, fixed priority where that is allowed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from runners.device.base import Conditions
from runners.device.cpu import facts, pressure
from runners.errors import DeviceError
from runners.measure.protocol import OFF_CPU_SHARE_MAX, Flag, WarmUp
from service.contract import DeviceHealth, EnvironmentReport

FIFO_PRIORITY = 50
STEAL_SHARE_MAX = 0.01
FOREIGN_CORES_MAX = 0.10  # more than this share of one core, used by others on any core, heats the shared cache and bus
WARM_UP = WarmUp(block_s=0.002, tolerance=0.03, limit_s=0.05)
TIMING_METHOD = "perf_counter+thread_time"
CACHE_POLICY = "warm"


class Priority(StrEnum):
    """Which scheduling the measured child gets."""

    AUTO = "auto"  # fixed priority where this user may set it
    PLAIN = "plain"


class CpuDevice:
    """A core of this machine; `cpu` names it, by default the last one that this process may use."""

    kind = "cpu"
    warm_up = WARM_UP

    def __init__(self, *, state_dir: Path, cpu: int | None = None, priority: Priority = Priority.AUTO) -> None:
        self._allowed = sorted(os.sched_getaffinity(0))
        # A launcher may have pinned us to the core that was meant for the kernels; the harness belongs elsewhere.
        self._all = sorted(set(range(os.cpu_count() or 1)) | set(self._allowed))
        self._cpu = self._allowed[-1] if cpu is None else cpu
        self._state_dir = state_dir
        self._reference_s: float | None = None
        self._fifo = priority is Priority.AUTO and fifo_allowed()

    @property
    def prepares_beside(self) -> bool:
        """Yes where another core than the measured one is there."""
        return len(self._all) > 1

    @property
    def canary_reference_s(self) -> float:
        """Canary seconds of this machine, measured once in a fresh process and kept in the state folder."""
        if self._reference_s is None:
            path = self._state_dir / "canary_reference_cpu.txt"
            kept = facts.read_text(path)
            if kept == facts.UNAVAILABLE:
                kept = _calibrate_canary()
                self._state_dir.mkdir(parents=True, exist_ok=True)
                scratch = path.with_suffix(f".{os.getpid()}")
                scratch.write_text(kept + "\n")
                scratch.replace(path)
            self._reference_s = float(kept)
        return self._reference_s

    def hello(self) -> dict[str, str]:
        """Nothing: a child is pinned from outside."""
        return {}

    def environment(self, canary_reference_s: float | None = None) -> EnvironmentReport:
        """Facts, comparable key and fingerprint of this host."""
        found = facts.host_facts()
        found |= {
            "canary_reference_s": repr(canary_reference_s or self.canary_reference_s),
            "timing_method": f"{TIMING_METHOD}, {'SCHED_FIFO' if self._fifo else 'plain'} scheduling",
            "cache_policy": CACHE_POLICY,
            "measured_cpu": str(self._cpu),
        }
        return EnvironmentReport(
            device=f"cpu:{found['cpu_model']}",
            comparable_key="cpu-" + _digest({name: found[name] for name in facts.COMPARABLE_FACTS}),
            fingerprint=_digest(found),
            facts=found,
        )

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Move this process off the measured core, and back afterwards."""
        before = os.sched_getaffinity(0)
        elsewhere = set(self._all) - {self._cpu}
        _set_affinity(0, elsewhere or before)
        try:
            yield
        finally:
            _set_affinity(0, before)

    def hold(self, pid: int, *, threads: int) -> tuple[Flag, ...]:
        """Pin the child to the measured core (a threaded kernel gets more), at fixed priority if that is allowed."""
        cores = {self._cpu}
        for cpu in reversed(self._all):
            if len(cores) < threads:
                cores.add(cpu)
        pinned = _set_affinity(pid, cores)
        if self._fifo:
            # Forks of untrusted code must not inherit the priority; the workers of a threaded kernel must.
            policy = os.SCHED_FIFO | (os.SCHED_RESET_ON_FORK if threads == 1 else 0)
            os.sched_setscheduler(pid, policy, os.sched_param(FIFO_PRIORITY))
        return () if pinned else (Flag.CLOCK_NOT_HELD,)

    def look(self, pid: int) -> Conditions:
        """Run-queue waits of the child, steal on its core and quota throttling."""
        readings = pressure.process_readings(pid) | pressure.steal_reading(self._cpu)
        return Conditions(time.monotonic(), readings | pressure.throttle_reading())

    def look_around(self) -> Conditions:
        """What everybody and what this process's tree has computed so far, and CPU pressure."""
        return Conditions(time.monotonic(), pressure.machine_readings() | pressure.pressure_reading())

    def judge_session(self, before: Conditions, after: Conditions) -> tuple[Flag, ...]:
        """`contended` when others kept the machine busy, even on another core: memory and the last cache are shared.

        Where /proc/stat cannot be read, pressure stalls stand in: they also count our own children's queueing.
        """
        span_s = max(after.taken_s - before.taken_s, 1e-9)
        grew = {name: after.readings[name] - seconds for name, seconds in before.readings.items()}
        others_s = grew["busy_s"] - grew["own_s"] if "busy_s" in grew else grew.get("pressure_s", 0.0)
        return (Flag.CONTENDED,) if others_s / span_s > FOREIGN_CORES_MAX else ()

    def clock_stood(self, before: Conditions, after: Conditions) -> bool:
        """The clock of a core cannot be read reliably; the kernel's own medians tell."""
        del before, after
        return True

    def health(self) -> DeviceHealth | None:
        """A processor says nothing of itself: its canaries must tell."""
        return None

    def judge(self, before: Conditions, after: Conditions, reply: dict[str, Any]) -> tuple[Flag, ...]:
        """`contended` when anybody else had the core while the block ran."""

        def grew(name: str) -> float:
            return after.readings.get(name, 0.0) - before.readings.get(name, 0.0)

        span_s = max(after.taken_s - before.taken_s, 1e-9)
        wall_s, cpu_s = sum(reply["wall_s"]), sum(reply["cpu_s"])
        off_cpu = 1.0 - cpu_s / wall_s if wall_s > 0 else 0.0
        contended = (
            off_cpu > OFF_CPU_SHARE_MAX
            or grew("waited_s") / span_s > OFF_CPU_SHARE_MAX
            or grew("steal_s") / span_s > STEAL_SHARE_MAX
            or grew("throttled_s") > 0
            or grew("involuntary_switches") > 0
        )
        return (Flag.CONTENDED,) if contended else ()


def fifo_allowed() -> bool:
    """Try it on ourselves for a moment: root, or a user with RLIMIT_RTPRIO, may; cgroup v1 may still say no."""
    if not hasattr(os, "SCHED_FIFO"):
        return False
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, policy, param)
    return True


def _set_affinity(pid: int, cores: set[int]) -> bool:
    try:
        os.sched_setaffinity(pid, cores)
    except OSError:
        return False
    return True


def _calibrate_canary() -> str:
    command = [sys.executable, "-P", "-m", "runners.measure.canary"]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    if done.returncode:
        raise DeviceError(f"the canary cannot run here: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


def _digest(found: dict[str, str]) -> str:
    text = "\n".join(f"{name}={found[name]}" for name in sorted(found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
