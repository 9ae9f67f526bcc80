"""What a host lets us set for quiet: governor and turbo.

Every old value is written down before the first is touched, so that `kernelwatch tune --restore` puts them back even
after a crash.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

QUIET_VALUES = {
    "governor": "performance",
    "no_turbo": "1",
    "boost": "0",
}


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of the machine: what it is now, what would be quiet, and whether this user may set it."""

    name: str
    paths: tuple[Path, ...]
    now: str
    quiet: str
    settable: bool


def find_knobs(sysfs: Path = Path("/sys")) -> list[Knob]:
    """The knobs that this machine has; a virtual machine usually has none, and none is assumed."""
    cpu = sysfs / "devices/system/cpu"
    candidates = {
        "governor": tuple(sorted(cpu.glob("cpu[0-9]*/cpufreq/scaling_governor"))),
        "no_turbo": (cpu / "intel_pstate/no_turbo",),
        "boost": (cpu / "cpufreq/boost",),
    }
    knobs = []
    for name, paths in candidates.items():
        there = tuple(path for path in paths if path.is_file())
        if there:
            now = there[0].read_text().strip()
            settable = all(os.access(path, os.W_OK) for path in there)
            knobs.append(Knob(name, there, now, QUIET_VALUES[name], settable))
    return knobs


def set_quiet(knobs: list[Knob], journal: Path) -> list[str]:
    """Set what may be set; the old values are in the journal before the first is touched. Returns what was set."""
    wanted = [knob for knob in knobs if knob.settable and knob.now != knob.quiet]
    if not wanted:
        return []
    old = {str(path): path.read_text().strip() for knob in wanted for path in knob.paths}
    kept = json.loads(journal.read_text()) if journal.exists() else {}
    journal.parent.mkdir(parents=True, exist_ok=True)
    scratch = journal.with_suffix(".new")
    scratch.write_text(json.dumps({**old, **kept}))  # what was there before the first change wins
    scratch.replace(journal)
    for knob in wanted:
        for path in knob.paths:
            path.write_text(knob.quiet)
    return [f"{knob.name}: {knob.now} -> {knob.quiet}" for knob in wanted]


def restore(journal: Path) -> list[str]:
    """Put back every value in the journal and forget it; returns what was put back."""
    if not journal.exists():
        return []
    done = []
    for name, value in json.loads(journal.read_text()).items():
        path = Path(name)
        if path.is_file():
            path.write_text(value)
            done.append(f"{path}: {value}")
    journal.unlink()
    return done
