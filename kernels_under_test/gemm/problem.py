"""Matrix product as linear layers use it: C[m,n] = A[m,k] * W[n,k]^T, activations by rows, weights as (out, in)."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes

BYTES = {"f32": 4, "tf32": 4, "bf16": 2, "f16": 2, "fp8": 1}
SAMPLED_ROWS, SLICE = 64, 4096


def sizes(axes: Axes) -> tuple[int, int, int]:
    """The axes m, n and k as integers."""
    return int(axes["m"]), int(axes["n"]), int(axes["k"])


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Uniform values in [-1, 1]: a zero matrix would draw less power and run faster."""
    m, n, k = sizes(axes)
    return {
        "a": rng.uniform(-1.0, 1.0, (m, k)).astype(np.float32),
        "w": rng.uniform(-1.0, 1.0, (n, k)).astype(np.float32),
    }


def reference(values: Inputs, axes: Axes) -> Array:  # noqa: ARG001
    """C = A W^T in the precision of the inputs."""
    return values["a"] @ values["w"].T


def sample(values: Inputs, axes: Axes, rng: np.random.Generator) -> tuple[Array, Array]:
    """64 rows of C, the weights taken in slices so that no second copy of them is needed."""
    m, n, _ = sizes(axes)
    rows = rng.choice(m, min(m, SAMPLED_ROWS), replace=False)
    left, slices = values["a"][rows].astype(np.float64), range(0, n, SLICE)
    return rows, np.concatenate([left @ values["w"][j : j + SLICE].T.astype(np.float64) for j in slices], axis=1)


def flops(axes: Axes) -> float:
    """2 M N K: a multiply and an add for each term."""
    return 2.0 * int(axes["m"]) * int(axes["n"]) * int(axes["k"])


def compulsory_bytes(axes: Axes, dtype: str) -> float:
    """Each operand read once, the result written once."""
    m, n, k = sizes(axes)
    return float((m * k + n * k) * BYTES[dtype] + m * n * max(BYTES[dtype], 2))


def tolerance(dtype: str, axes: Axes) -> Tolerance:
    """Rounding grows with K: an fp32 sum of K terms in [-1, 1] errs by about sqrt(K)/3 * 2^-24 per step."""
    k = int(axes["k"])
    if dtype == "f32":
        return Tolerance(rtol=1e-5, atol=max(k, 16) * 2.0**-24, rel_l2=1e-6 * max(1.0, k**0.5 / 8))
    if dtype == "tf32":
        return Tolerance(rtol=2e-3, atol=2e-3 * k**0.5 / 3, rel_l2=1e-3)
    if dtype == "fp8":  # tensor cores may add FP8 products in fewer bits: judged against the spread of the results
        return Tolerance(rtol=1.6e-2, atol=0.02 * k**0.5 / 3, rel_l2=1e-2, outlier_share=0.01)
    ulp, rel_l2 = (1.6e-2, 5e-3) if dtype == "bf16" else (2e-3, 1e-3)
    return Tolerance(rtol=ulp, atol=4 * max(k, 16) * 2.0**-24, rel_l2=rel_l2)


def _shape(m: int, n: int, k: int, tier: str = "core", label: str = "") -> Workload:
    return Workload(axes={"m": m, "n": n, "k": k}, tier=tier, label=label)


GEMM = Problem(
    name="gemm",
    family="gemm",
    axes=("m", "n", "k"),
    inputs=inputs,
    reference=reference,
    sample=sample,
    flops=flops,
    bytes=compulsory_bytes,
    tolerance=tolerance,
    workloads=(
        _shape(512, 512, 512, label="square"),
        _shape(128, 768, 1024, label="prefill chunk"),
        _shape(64, 1536, 512, label="small batch, wide layer"),
        _shape(255, 509, 387, label="ragged in every axis"),
        _shape(1, 2048, 1536, label="decode, one token"),
        _shape(16, 2048, 512, label="decode, a small batch"),
        _shape(1024, 1024, 1024, "nightly", "square"),
        _shape(127, 129, 253, "nightly", "ragged and small"),
        _shape(3, 130, 77, "nightly", "skinny and ragged"),
        *(_shape(256, n, 512, "nightly", "scan for a cliff") for n in range(504, 529, 4)),
        *cuda_shapes("gemm"),
    ),
)
