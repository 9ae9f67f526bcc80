"""Who else wants this CPU: run-queue waits of one process, steal, cgroup throttling, pressure stalls, others' work.

Every source may be absent (other kernels, cgroup v1 or v2, containers): absent readings are left out, never zero.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")


def process_readings(pid: int, procfs: Path = Path("/proc")) -> dict[str, float]:
    """Seconds the process ran and waited for a CPU (schedstat), and its involuntary switches."""
    readings: dict[str, float] = {}
    text = _read(procfs / str(pid) / "schedstat")
    if text:
        ran, waited, *_ = text.split()
        readings["ran_s"], readings["waited_s"] = int(ran) * 1e-9, int(waited) * 1e-9
    for line in _read(procfs / str(pid) / "status").splitlines():
        if line.startswith("nonvoluntary_ctxt_switches:"):
            readings["involuntary_switches"] = float(line.split()[1])
    return readings


def steal_reading(cpu: int, procfs: Path = Path("/proc")) -> dict[str, float]:
    """Seconds that the hypervisor took from one CPU (eighth field of its line in /proc/stat, see proc(5))."""
    for line in _read(procfs / "stat").splitlines():
        name, *fields = line.split()
        if name == f"cpu{cpu}" and len(fields) >= 8:
            return {"steal_s": int(fields[7]) * _TICK_S}
    return {}


def machine_readings(procfs: Path = Path("/proc")) -> dict[str, float]:
    """CPU seconds of everybody on all cores (/proc/stat: user, nice, system, irq, softirq) and of this process's tree.

    Of the tree, children count once they have been waited for.
    """
    own = os.times()
    for line in _read(procfs / "stat").splitlines():
        name, *fields = line.split()
        if name == "cpu" and len(fields) >= 7:
            user, nice, system, _idle, _iowait, irq, softirq = (int(f) for f in fields[:7])
            return {
                "busy_s": (user + nice + system + irq + softirq) * _TICK_S,
                "own_s": own.user + own.system + own.children_user + own.children_system,
            }
    return {}


def throttle_reading(cgroup_root: Path = Path("/sys/fs/cgroup"), procfs: Path = Path("/proc")) -> dict[str, float]:
    """Seconds that a CPU quota stopped this process's cgroup, from v2 (usec) or v1 (nsec) cpu.stat."""
    for line in _read(procfs / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            text = _read(cgroup_root / path.lstrip("/") / "cpu.stat")
        elif "cpu" in controllers.split(","):
            text = _read(cgroup_root / "cpu" / path.lstrip("/") / "cpu.stat")
        else:
            continue
        for stat in text.splitlines():
            name, _, value = stat.partition(" ")
            if name == "throttled_usec":
                return {"throttled_s": int(value) * 1e-6}
            if name == "throttled_time":
                return {"throttled_s": int(value) * 1e-9}
    return {}


def pressure_reading(procfs: Path = Path("/proc")) -> dict[str, float]:
    """Seconds in which some task of the machine waited for a CPU (PSI)."""
    for line in _read(procfs / "pressure/cpu").splitlines():
        if line.startswith("some"):
            return {"pressure_s": int(line.rpartition("total=")[2]) * 1e-6}
    return {}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
