"""Where a runner keeps things and how it is limited; the edge fills it from the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

POLL_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """`lock_dir` is shared by all runners of the host; `broker_url` None means polling only."""

    state_dir: Path
    cache_dir: Path
    lock_dir: Path
    broker_url: str | None = None
    poll_s: float = POLL_S
    memory_bytes: int = 6 << 30
    cpu: int | None = None
