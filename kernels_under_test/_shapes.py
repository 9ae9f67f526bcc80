"""Shapes of real models for CUDA, from the table `shapes.jsonl`: one line a shape, with its tier and its origin.

Shapes whose inputs exceed 4 GB are not in it, nor those of more than 1.2 TFLOP whose reference cannot be sampled.
"""

from __future__ import annotations

import json
from pathlib import Path

from runners.api import Workload


def cuda_shapes(problem: str) -> tuple[Workload, ...]:
    """The CUDA workloads of a problem."""
    lines = Path(__file__).with_name("shapes.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["problem"] == problem]
    return tuple(Workload(axes=row["axes"], tier=row["tier"], device="cuda", label=row["label"]) for row in rows)
