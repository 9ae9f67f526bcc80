"""Many small products of one shape: C[b] = A[b] W[b]^T."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Workload

from .._shapes import cuda_shapes
from . import problem


def sizes(axes: Axes) -> tuple[int, int, int, int]:
    """The axes b, m, n and k as integers."""
    return int(axes["b"]), *problem.sizes(axes)


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Uniform values in [-1, 1]."""
    b, m, n, k = sizes(axes)
    return {
        "a": rng.uniform(-1.0, 1.0, (b, m, k)).astype(np.float32),
        "w": rng.uniform(-1.0, 1.0, (b, n, k)).astype(np.float32),
    }


def reference(values: Inputs, axes: Axes) -> Array:  # noqa: ARG001
    """One product after the other."""
    return values["a"] @ values["w"].swapaxes(1, 2)


BATCHED = Problem(
    name="gemm_batched",
    family="gemm",
    axes=("b", "m", "n", "k"),
    inputs=inputs,
    reference=reference,
    flops=lambda axes: int(axes["b"]) * problem.flops(axes),
    bytes=lambda axes, dtype: int(axes["b"]) * problem.compulsory_bytes(axes, dtype),
    tolerance=problem.tolerance,
    workloads=(
        Workload(axes={"b": 64, "m": 64, "n": 64, "k": 128}, label="attention heads"),
        Workload(axes={"b": 16, "m": 128, "n": 96, "k": 256}, tier="nightly"),
        Workload(axes={"b": 5, "m": 33, "n": 17, "k": 71}, tier="nightly", label="ragged"),
        *cuda_shapes("gemm_batched"),
    ),
)
