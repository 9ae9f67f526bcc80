"""Sample the next token from logits: keep the k largest, of them the smallest set that holds the mass p, draw one.

The draw is a number that comes with the inputs, so the answer is one token per row and can be compared exactly.
"""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes


def sizes(axes: Axes) -> tuple[int, int, int]:
    """Rows, vocabulary, k."""
    return int(axes["rows"]), int(axes["vocab"]), int(axes["k"])


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Peaked logits, and one uniform number a row."""
    rows, vocab, _ = sizes(axes)
    return {
        "logits": (3.0 * rng.standard_normal((rows, vocab))).astype(np.float32),
        "draw": rng.random(rows).astype(np.float32),
    }


def reference(values: Inputs, axes: Axes) -> Array:
    """The token of each row: descending order, softmax over k, cut behind the mass p, inverse of the distribution."""
    rows, _, k = sizes(axes)
    order = np.argsort(-values["logits"], axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(values["logits"], order, 1)
    weights = np.exp(best - best[:, :1])
    reached = np.cumsum(weights / weights.sum(1, keepdims=True), axis=1)
    kept = 1 + (reached < float(axes["p"])).sum(1, keepdims=True)
    mass = np.take_along_axis(reached, np.minimum(kept, k) - 1, 1)
    chosen = (reached <= values["draw"][:, None] * mass).sum(1)
    return order[np.arange(rows), np.minimum(chosen, k - 1)]


def tolerance(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """A token is right or wrong."""
    return Tolerance(rtol=0.0, atol=0.0, rel_l2=0.0)


def _shape(rows: int, vocab: int, k: int, p: float, *, tier: str = "core", label: str = "") -> Workload:
    return Workload(axes={"rows": rows, "vocab": vocab, "k": k, "p": p}, tier=tier, label=label)


SAMPLING = Problem(
    name="sample_top_k_top_p",
    family="sampling",
    axes=("rows", "vocab", "k", "p"),
    inputs=inputs,
    reference=reference,
    flops=lambda axes: float(sizes(axes)[0] * sizes(axes)[1]),
    bytes=lambda axes, _: float(sizes(axes)[0] * (sizes(axes)[1] * 4 + 12)),
    tolerance=tolerance,
    workloads=(
        _shape(32, 128256, 50, 0.9, label="Llama-3 vocabulary"),
        _shape(16, 151936, 20, 0.95, tier="nightly", label="Qwen3 vocabulary"),
        _shape(5, 1003, 7, 0.5, tier="nightly", label="ragged"),
        _shape(3, 40, 1, 1.0, tier="nightly", label="greedy"),
        *cuda_shapes("sample_top_k_top_p"),
    ),
)
