"""A paged key-value cache: append new tokens at their slots, and gather the pages of each sequence."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes

BYTES = {"f32": 4, "bf16": 2, "f16": 2}


def append_sizes(axes: Axes) -> tuple[int, int, int]:
    """New tokens, slots of the cache, floats of one token (heads times head size)."""
    return int(axes["t"]), int(axes["slots"]), int(axes["width"])


def append_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Each token has a slot of its own, anywhere in the cache."""
    t, slots, width = append_sizes(axes)
    return {
        "fresh": rng.standard_normal((t, width), dtype=np.float32),
        "slot": rng.permutation(slots)[:t].astype(np.int64),
    }


def append_reference(values: Inputs, axes: Axes) -> Array:
    """A cache of zeros with the tokens at their slots."""
    _, slots, width = append_sizes(axes)
    cache = np.zeros((slots, width))
    cache[values["slot"]] = values["fresh"]
    return cache


def gather_sizes(axes: Axes) -> tuple[int, int, int, int]:
    """Sequences, tokens of each, tokens of a page, floats of one token."""
    return int(axes["b"]), int(axes["kv"]), int(axes["page"]), int(axes["width"])


def gather_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """A cache of shuffled pages and the page table of each sequence."""
    b, kv, page, width = gather_sizes(axes)
    pages = -(-kv // page)
    return {
        "cache": rng.standard_normal((b * pages, page, width), dtype=np.float32),
        "table": rng.permutation(b * pages).reshape(b, pages).astype(np.int64),
    }


def gather_reference(values: Inputs, axes: Axes) -> Array:
    """[b, kv, width] in order."""
    b, kv, _, width = gather_sizes(axes)
    return values["cache"][values["table"]].reshape(b, -1, width)[:, :kv]


def exact(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """A copy changes nothing."""
    return Tolerance(rtol=0.0, atol=0.0, rel_l2=0.0)


APPEND = Problem(
    name="kv_append",
    family="kvcache",
    axes=("t", "slots", "width"),
    inputs=append_inputs,
    reference=append_reference,
    flops=lambda _: 0.0,
    bytes=lambda axes, dtype: float(int(axes["t"]) * (2 * int(axes["width"]) * BYTES[dtype] + 8)),
    tolerance=exact,
    workloads=(
        Workload(axes={"t": 8192, "slots": 12288, "width": 1024}, label="prefill"),
        Workload(axes={"t": 64, "slots": 4096, "width": 1024}, tier="nightly", label="decode"),
        Workload(axes={"t": 7, "slots": 19, "width": 13}, tier="nightly", label="ragged"),
        *cuda_shapes("kv_append"),
    ),
)
GATHER = Problem(
    name="kv_gather",
    family="kvcache",
    axes=("b", "kv", "page", "width"),
    inputs=gather_inputs,
    reference=gather_reference,
    flops=lambda _: 0.0,
    bytes=lambda axes, dtype: float(2 * int(axes["b"]) * int(axes["kv"]) * int(axes["width"]) * BYTES[dtype]),
    tolerance=exact,
    workloads=(
        Workload(axes={"b": 8, "kv": 1024, "page": 16, "width": 1024}, label="pages of 16"),
        Workload(axes={"b": 4, "kv": 512, "page": 64, "width": 1024}, tier="nightly", label="pages of 64"),
        Workload(axes={"b": 3, "kv": 37, "page": 16, "width": 5}, tier="nightly", label="ragged"),
        *cuda_shapes("kv_gather"),
    ),
)
