"""Rotary position embedding, halves convention: one half of a head rotates against the other (Su et al. 2021)."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes

BYTES = {"f32": 4, "bf16": 2, "f16": 2}
BASE = 10000.0


def sizes(axes: Axes) -> tuple[int, int, int]:
    """Tokens, heads, head size."""
    return int(axes["t"]), int(axes["heads"]), int(axes["d"])


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Queries, and the cosine and sine of each token's position (a table that serving code keeps)."""
    t, heads, d = sizes(axes)
    angles = rng.integers(0, 4096, t)[:, None] * BASE ** (-np.arange(0, d, 2) / d)
    return {
        "x": rng.standard_normal((t, heads, d), dtype=np.float32),
        "cosine": np.cos(angles).astype(np.float32),
        "sine": np.sin(angles).astype(np.float32),
    }


def reference(values: Inputs, axes: Axes) -> Array:
    """(a cos - b sin, b cos + a sin) for the halves a and b of each head."""
    half = sizes(axes)[2] // 2
    a, b = values["x"][..., :half], values["x"][..., half:]
    cosine, sine = values["cosine"][:, None], values["sine"][:, None]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def compulsory_bytes(axes: Axes, dtype: str) -> float:
    """Read and written once, and the table of each token."""
    t, heads, d = sizes(axes)
    return float((2 * t * heads * d + t * d) * BYTES[dtype])


def tolerance(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """Two products and a sum, each rounded once."""
    return Tolerance(rtol=1e-5, atol=1e-6, rel_l2=1e-6) if dtype == "f32" else Tolerance(1.6e-2, 8e-3, 5e-3)


ROPE = Problem(
    name="rope",
    family="rope",
    axes=("t", "heads", "d"),
    inputs=inputs,
    reference=reference,
    flops=lambda axes: 3.0 * float(np.prod(sizes(axes))),
    bytes=compulsory_bytes,
    tolerance=tolerance,
    workloads=(
        Workload(axes={"t": 2048, "heads": 32, "d": 128}, label="prefill"),
        Workload(axes={"t": 16, "heads": 8, "d": 64}, tier="nightly", label="decode"),
        Workload(axes={"t": 7, "heads": 3, "d": 26}, tier="nightly", label="ragged"),
        *cuda_shapes("rope"),
    ),
)
