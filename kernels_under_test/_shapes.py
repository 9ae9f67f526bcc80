"""Shapes of real models for CUDA, from the table `shapes.jsonl`: one line a shape, with its tier and its origin.

A line with `"cache": "cold"` is timed with its buffers evicted, as weights and tokens are found in a real decode step.
Shapes whose inputs exceed 4 GB are not in it, nor those of more than 1.2 TFLOP whose reference cannot be sampled.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runners.api import Cache, Workload


def cuda_shapes(problem: str) -> tuple[Workload, ...]:
    """The CUDA workloads of a problem."""
    lines = Path(__file__).with_name("shapes.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["problem"] == problem]
    return tuple(_workload(row) for row in rows)


def _workload(row: dict[str, Any]) -> Workload:
    cache = Cache(row.get("cache", "warm"))
    return Workload(axes=row["axes"], tier=row["tier"], device="cuda", label=row["label"], cache=cache)
