"""Commands of a device host or a laptop; each is imported when its name is looked up (PEP 562)."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_COMMANDS = {
    "runner": "runners.runner_cli",
    "kernels": "runners.kernels_cli",
    "compare": "runners.compare_cli",
    "bisect": "runners.bisect_cli",
    "measure_module": "runners.module_cli",
    "compare_module": "runners.module_cli",
    "static": "runners.static_cli",
    "tune": "runners.tune_cli",
}


def __getattr__(name: str) -> Any:
    """The click command of that name."""
    if name not in _COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_COMMANDS[name]), name)
