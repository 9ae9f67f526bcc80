"""Scaled dot-product attention of a prefill: grouped heads, causal or not."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes

BYTES = {"f32": 4, "bf16": 2, "f16": 2}
SAMPLED_ROWS = 64
AXES = ("b", "hq", "hkv", "sq", "skv", "d", "causal")


def sizes(axes: Axes) -> tuple[int, int, int, int, int, int]:
    """The axes b, hq, hkv, sq, skv and d as integers."""
    b, hq, hkv, sq, skv, d = (int(axes[name]) for name in AXES[:-1])
    return b, hq, hkv, sq, skv, d


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Normal values, as a layer norm leaves them."""
    b, hq, hkv, sq, skv, d = sizes(axes)
    shapes = {"q": (b, hq, sq, d), "k": (b, hkv, skv, d), "v": (b, hkv, skv, d)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def reference(values: Inputs, axes: Axes) -> Array:
    """softmax(Q K^T / sqrt(d)) V, head by head; a causal query i sees the keys up to skv - sq + i."""
    b, hq, hkv, sq, skv, d = sizes(axes)
    out = np.empty_like(values["q"])
    hidden = np.triu(np.ones((sq, skv), bool), skv - sq + 1) if axes["causal"] else None
    for batch, head in np.ndindex(b, hq):
        group = head * hkv // hq
        scores = values["q"][batch, head] @ values["k"][batch, group].T / np.sqrt(d)
        if hidden is not None:
            scores[hidden] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[batch, head] = weights @ values["v"][batch, group] / weights.sum(-1, keepdims=True)
    return out


def sample(values: Inputs, axes: Axes, rng: np.random.Generator) -> tuple[Array, Array]:
    """64 queries of any batch and head, each against all keys that it may see."""
    b, hq, hkv, sq, skv, d = sizes(axes)
    rows = rng.choice(b * hq * sq, min(b * hq * sq, SAMPLED_ROWS), replace=False)
    out = np.empty((len(rows), d))
    for at, row in enumerate(rows):
        batch, head, query = np.unravel_index(row, (b, hq, sq))
        seen = skv - sq + query + 1 if axes["causal"] else skv
        k, v = (values[name][batch, head * hkv // hq, :seen].astype(np.float64) for name in ("k", "v"))
        scores = k @ values["q"][batch, head, query].astype(np.float64) / np.sqrt(d)
        weights = np.exp(scores - scores.max())
        out[at] = weights @ v / weights.sum()
    return rows, out


def flops(axes: Axes) -> float:
    """Two products of 2 d per visible (query, key) pair: 2 B Sq Skv Hq (2 d), causal B Sq (2 Skv - Sq) Hq (2 d)."""
    b, hq, _, sq, skv, d = sizes(axes)
    pairs = sq * (2 * skv - sq) / 2 if axes["causal"] else sq * skv
    return float(b * hq * pairs * 4 * d)


def compulsory_bytes(axes: Axes, dtype: str) -> float:
    """Q, K and V read once, O written once."""
    b, hq, hkv, sq, skv, d = sizes(axes)
    return float(b * d * (2 * sq * hq + 2 * skv * hkv) * BYTES[dtype])


def tolerance(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """Outputs are averages of unit normals; the weights carry the rounding of the exponential."""
    if dtype == "f32":
        return Tolerance(rtol=1e-4, atol=2e-5, rel_l2=1e-5)
    return Tolerance(rtol=1.6e-2, atol=1e-2, rel_l2=1e-2) if dtype == "bf16" else Tolerance(2e-3, 2e-3, 2e-3)


def _shape(hq: int, hkv: int, sq: int, skv: int, d: int, causal: int, tier: str = "core", label: str = "") -> Workload:
    axes = {"b": 1, "hq": hq, "hkv": hkv, "sq": sq, "skv": skv, "d": d, "causal": causal}
    return Workload(axes=axes, tier=tier, label=label)


PREFILL = Problem(
    name="attention_prefill",
    family="attention",
    axes=AXES,
    inputs=inputs,
    reference=reference,
    sample=sample,
    flops=flops,
    bytes=compulsory_bytes,
    tolerance=tolerance,
    workloads=(
        _shape(4, 4, 384, 384, 64, 0, label="full"),
        _shape(8, 2, 384, 384, 64, 1, label="causal, grouped heads"),
        _shape(4, 1, 127, 515, 128, 1, label="chunked, ragged"),
        _shape(1, 1, 1024, 1024, 64, 0, "nightly", "one long head"),
        _shape(2, 1, 33, 61, 64, 1, "nightly", "tiny, ragged"),
        *cuda_shapes("attention_prefill"),
    ),
)
