"""The epoch of the stopwatch: figures of different epochs are never compared.

Any edit of the measuring code either has no effect on figures (then only the hash is renewed) or it has (then the
epoch goes up too, and every series starts anew). A test compares the hash, so nobody forgets to decide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

HARNESS_EPOCH = 1
STOPWATCH_FILES = (
    "api.py",
    "device/cuda/canary.py",
    "device/cuda/cupy_events.py",
    "device/cuda/plan.py",
    "device/cuda/stopwatch.py",
    "device/cuda/timer.py",
    "measure/canary.py",
    "measure/child.py",
    "measure/protocol.py",
    "measure/timer.py",
)
STOPWATCH_HASH = "9f62173b39f28ff5"


def stopwatch_hash(root: Path, files: Iterable[str] = STOPWATCH_FILES) -> str:
    """Hash of the measuring code under the folder of the `runners` package."""
    digest = hashlib.sha256()
    for name in files:
        digest.update(name.encode() + b"\0" + (root / name).read_bytes() + b"\0")
    return digest.hexdigest()[:16]
