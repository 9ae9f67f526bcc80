"""Causal attention over a sliding window with attention sinks, as gpt-oss uses it in every other layer."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Workload

from .._shapes import cuda_shapes
from . import problem

AXES = ("b", "hq", "hkv", "sq", "skv", "d", "window")


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """As for prefill, and a learned sink score for each head."""
    sinks = rng.standard_normal(int(axes["hq"]), dtype=np.float32)
    return {**problem.inputs(axes, rng), "sinks": sinks}


def hidden_pairs(sq: int, skv: int, window: int) -> Array:
    """True where a query must not look: keys after its position, and keys before its window."""
    distance = (np.arange(sq) + skv - sq)[:, None] - np.arange(skv)
    return (distance < 0) | (distance >= window)


def reference(values: Inputs, axes: Axes) -> Array:
    """Softmax over the window and the sink; the sink's share goes nowhere."""
    b, hq, hkv, sq, skv, d = problem.sizes(axes)
    hidden = hidden_pairs(sq, skv, int(axes["window"]))
    out = np.empty_like(values["q"])
    for batch, head in np.ndindex(b, hq):
        group = head * hkv // hq
        scores = values["q"][batch, head] @ values["k"][batch, group].T / np.sqrt(d)
        scores[hidden] = -np.inf
        sink = values["sinks"][head]
        top = np.maximum(scores.max(-1, keepdims=True), sink)
        weights = np.exp(scores - top)
        out[batch, head] = weights @ values["v"][batch, group] / (weights.sum(-1, keepdims=True) + np.exp(sink - top))
    return out


def flops(axes: Axes) -> float:
    """4 d for each visible pair."""
    b, hq, _, sq, skv, d = problem.sizes(axes)
    visible = sq * skv - int(hidden_pairs(sq, skv, int(axes["window"])).sum())
    return float(b * hq * visible * 4 * d)


def _shape(*numbers: int, tier: str = "core", label: str = "") -> Workload:
    return Workload(axes=dict(zip(AXES, numbers, strict=True)), tier=tier, label=label)


WINDOW = Problem(
    name="attention_window",
    family="attention",
    axes=AXES,
    inputs=inputs,
    reference=reference,
    flops=flops,
    bytes=problem.compulsory_bytes,
    tolerance=problem.tolerance,
    workloads=(
        _shape(1, 8, 1, 1024, 1024, 64, 128, label="gpt-oss, prefill"),
        _shape(1, 4, 2, 100, 515, 64, 128, tier="nightly", label="chunk, ragged"),
        _shape(2, 2, 1, 61, 61, 32, 13, tier="nightly", label="tiny window, ragged"),
        *cuda_shapes("attention_window"),
    ),
)
