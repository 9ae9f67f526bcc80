"""Row-wise normalisations: RMSNorm, residual add fused with RMSNorm, and softmax. All are bound by memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runners.api import Array, Axes, InputRecipe, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes

BYTES = {"f32": 4, "bf16": 2, "f16": 2}
EPSILON = 1e-6


def sizes(axes: Axes) -> tuple[int, int]:
    """Rows and columns."""
    return int(axes["rows"]), int(axes["cols"])


def norm_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Activations with a few large columns, as residual streams have them, a residual, and weights near one."""
    rows, cols = sizes(axes)
    x = rng.standard_normal((rows, cols), dtype=np.float32)
    x[:, rng.integers(0, cols, max(1, cols // 100))] *= np.float32(20.0)
    return {
        "x": x,
        "residual": rng.standard_normal((rows, cols), dtype=np.float32),
        "weight": rng.uniform(0.5, 1.5, cols).astype(np.float32),
    }


def rmsnorm(values: Inputs, axes: Axes) -> Array:  # noqa: ARG001
    """X / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich 2019)."""
    x = values["x"]
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * values["weight"]


def add_rmsnorm(values: Inputs, axes: Axes) -> Array:
    """[x + residual, RMSNorm of it], stacked."""
    added = values["x"] + values["residual"]
    return np.stack([added, rmsnorm({"x": added, "weight": values["weight"]}, axes)])


def logits(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Logits with a spread of several units."""
    return {"x": (4.0 * rng.standard_normal(sizes(axes))).astype(np.float32)}


def softmax(values: Inputs, axes: Axes) -> Array:  # noqa: ARG001
    """exp(x - max) / sum."""
    weights = np.exp(values["x"] - values["x"].max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def tolerance(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """One rounding of the result, and the rounding of one sum."""
    if dtype == "f32":
        return Tolerance(rtol=1e-5, atol=1e-6, rel_l2=1e-5)
    return Tolerance(rtol=1.6e-2, atol=1e-3, rel_l2=5e-3) if dtype == "bf16" else Tolerance(2e-3, 1e-4, 1e-3)


def _problem(
    name: str,
    make: InputRecipe,
    reference: Callable[[Inputs, Axes], Array],
    *,
    passes: int,
    flops_per_value: int,
    workloads: tuple[Workload, ...],
) -> Problem:
    """A row-wise problem that reads and writes `passes` arrays of rows x cols."""

    def moved_bytes(axes: Axes, dtype: str) -> float:
        return float(sizes(axes)[0] * sizes(axes)[1] * passes * BYTES[dtype])

    return Problem(
        name=name,
        family="norm",
        axes=("rows", "cols"),
        inputs=make,
        reference=reference,
        flops=lambda axes: float(sizes(axes)[0] * sizes(axes)[1] * flops_per_value),
        bytes=moved_bytes,
        tolerance=tolerance,
        workloads=(*workloads, *cuda_shapes(name)),
    )


def _shape(rows: int, cols: int, tier: str = "core", label: str = "") -> Workload:
    return Workload(axes={"rows": rows, "cols": cols}, tier=tier, label=label)


RAGGED = (_shape(3, 2880, "nightly", "decode"), _shape(33, 1001, "nightly", "ragged"), _shape(1, 7, "nightly", "tiny"))

RMSNORM = _problem(
    "rmsnorm",
    norm_inputs,
    rmsnorm,
    passes=2,
    flops_per_value=4,
    workloads=(_shape(1024, 4096, label="prefill"), *RAGGED),
)
ADD_RMSNORM = _problem(
    "add_rmsnorm", norm_inputs, add_rmsnorm, passes=4, flops_per_value=5, workloads=(_shape(768, 4096), *RAGGED)
)
SOFTMAX = _problem(
    "softmax",
    logits,
    softmax,
    passes=2,
    flops_per_value=5,
    workloads=(_shape(32, 128256, label="Llama-3 vocabulary"), *RAGGED),
)
