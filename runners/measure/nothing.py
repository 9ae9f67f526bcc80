"""A kernel that does nothing: what a canary run mounts instead of a suite, so that no commit's code takes part."""

from __future__ import annotations

from collections.abc import Callable


def make(kernel: str, slow_pct: float) -> Callable[[], None]:
    """Return the callable that `runners.measure.child` asks a module for."""
    del kernel, slow_pct
    return lambda: None
