"""Whether a kernel does its work when it is launched, and not before, or only once (fault F10).

A right result alone does not say so: the answer may be computed while inputs are loaded or the output is read, which
nobody times, or at the first launch only, so that all timed ones return at once. Both show when the output is looked
at without a launch, and when a result is spoilt between two launches.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runners.api import Launch
from runners.measure.correctness import to_host

_NUMERIC = "fiu"
READY = "the right answer was there before the kernel was launched on it: its work is done where nobody times it"
IDLE = "launched again, it left a spoilt result as it was: its work is skipped after the first launch"


def answers_without_launch(launch: Launch) -> np.ndarray[Any, Any] | None:
    """What the output holds now, without any launch; None if it cannot be read yet."""
    try:
        return np.array(to_host(launch.output()))
    except Exception:  # noqa: BLE001 - a commit's code may refuse to show an output that is not there yet
        return None


def unchanged(early: np.ndarray[Any, Any] | None, output: Any) -> bool:
    """Whether a launch left the output bit for bit as it was."""
    return early is not None and np.array_equal(early, to_host(output))


def leaves_spoilt(launch: Launch, *, stale: np.ndarray[Any, Any] | None) -> bool:
    """Spoil what the last launch wrote, launch again, and say whether the spoilt values are still there.

    `stale` is the output before that launch: only elements that it changed are known to be the kernel's to write. An
    output that is read through a copy cannot be spoilt, and one that accumulates changes what it finds; neither is
    blamed.
    """
    output = launch.output()
    right = np.array(to_host(output))
    if stale is None or stale.shape != right.shape or right.dtype.kind not in _NUMERIC:
        return False
    written = stale != right
    spoilt = np.where(written, -right - right.dtype.type(1), right).astype(right.dtype)
    written &= spoilt != right
    if not written.any() or not _overwrite(output, spoilt):
        return False
    launch.run()
    now = np.array(to_host(launch.output()))
    return bool((now[written] == spoilt[written]).all())


def _overwrite(output: Any, values: np.ndarray[Any, Any]) -> bool:
    """Write into the kernel's own buffer, NumPy's or CuPy's; False if it cannot be written."""
    if isinstance(output, np.ndarray):
        if not output.flags.writeable:
            return False
        output[...] = values
        return True
    put = getattr(output, "set", None)
    if not callable(put) or not output.flags.c_contiguous:
        return False
    put(values)
    return True
