"""Where commands that a person runs keep what must survive: the XDG folders, or what the environment says."""

from __future__ import annotations

import os
from pathlib import Path


def state_dir() -> Path:
    """Calibrations of this machine."""
    return _home("KERNELWATCH_DATA_DIR", "XDG_DATA_HOME", ".local/share") / "runner"


def cache_dir() -> Path:
    """Mirrors, worktrees and compiled libraries."""
    return _home("KERNELWATCH_CACHE_DIR", "XDG_CACHE_HOME", ".cache") / "compare"


def _home(variable: str, xdg: str, fallback: str) -> Path:
    given = os.environ.get(variable)
    if given:
        return Path(given)
    return Path(os.environ.get(xdg) or Path.home() / fallback) / "kernelwatch"
