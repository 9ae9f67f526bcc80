"""A mixture-of-experts layer: top-k routing, gate and up projection, SiLU, down projection, weighted sum."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes

BYTES = {"f32": 4, "bf16": 2, "f16": 2}
AXES = ("t", "e", "topk", "h", "i", "routing")


def sizes(axes: Axes) -> tuple[int, int, int, int, int]:
    """Tokens, experts, experts per token, hidden size and expert size."""
    t, e, topk, h, i = (int(axes[name]) for name in AXES[:-1])
    return t, e, topk, h, i


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Router logits come ready: uniform, or with popularity that falls as 1/rank (balance would hide the tail)."""
    t, e, _, h, i = sizes(axes)
    logits = rng.standard_normal((t, e))
    if axes["routing"] == "zipf":
        logits -= np.log(rng.permutation(e) + 1.0)
    return {
        "x": rng.standard_normal((t, h), dtype=np.float32),
        "logits": logits.astype(np.float32),
        "up_gate": rng.uniform(-1.0, 1.0, (e, h, 2 * i)).astype(np.float32) * np.float32((3.0 / h) ** 0.5),
        "down": rng.uniform(-1.0, 1.0, (e, i, h)).astype(np.float32) * np.float32((3.0 / i) ** 0.5),
    }


def route(logits: Array, topk: int) -> tuple[Array, Array]:
    """The chosen experts of each token and their softmax weights, both [t, topk]."""
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :topk]
    best = np.take_along_axis(logits, chosen, 1)
    weights = np.exp(best - best.max(1, keepdims=True))
    return chosen, weights / weights.sum(1, keepdims=True)


def reference(values: Inputs, axes: Axes) -> Array:
    """Expert by expert, in the precision of the inputs."""
    i = int(axes["i"])
    chosen, weights = route(values["logits"], int(axes["topk"]))
    out = np.zeros_like(values["x"])
    for expert in range(int(axes["e"])):
        tokens, slots = np.nonzero(chosen == expert)
        both = values["x"][tokens] @ values["up_gate"][expert]
        gate, up = both[:, :i], both[:, i:]
        out[tokens] += weights[tokens, slots, None] * ((gate / (1 + np.exp(-gate)) * up) @ values["down"][expert])
    return out


def flops(axes: Axes) -> float:
    """T k (4 H I + 2 I H): two projections up, one down, for each token and chosen expert."""
    t, _, topk, h, i = sizes(axes)
    return float(t * topk * 6 * h * i)


def experts_touched(t: int, e: int, topk: int) -> float:
    """Expected number of experts with at least one token under uniform routing: E (1 - (1 - k/E)^T)."""
    return e * (1.0 - (1.0 - topk / e) ** t)


def compulsory_bytes(axes: Axes, dtype: str) -> float:
    """Tokens in and out, logits, and the weights of the experts touched: T H e 2 + T E 4 + A 3 H I e."""
    t, e, topk, h, i = sizes(axes)
    return float(2 * t * h * BYTES[dtype] + 4 * t * e + experts_touched(t, e, topk) * 3 * h * i * BYTES[dtype])


def tolerance(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """Values are of order one after both projections; errors add up over two of them."""
    if dtype == "f32":
        return Tolerance(rtol=1e-4, atol=5e-5, rel_l2=1e-5)
    return Tolerance(rtol=3e-2, atol=3e-2, rel_l2=1e-2) if dtype == "bf16" else Tolerance(5e-3, 5e-3, 2e-3)


def _shape(t: int, e: int, topk: int, h: int, i: int, routing: str, tier: str = "core", label: str = "") -> Workload:
    axes: Axes = {"t": t, "e": e, "topk": topk, "h": h, "i": i, "routing": routing}
    return Workload(axes=axes, tier=tier, label=label)


LAYER = Problem(
    name="moe_layer",
    family="moe",
    axes=AXES,
    inputs=inputs,
    reference=reference,
    flops=flops,
    bytes=compulsory_bytes,
    tolerance=tolerance,
    workloads=(
        _shape(128, 8, 2, 256, 384, "uniform", label="few large experts"),
        _shape(128, 32, 4, 256, 192, "uniform", label="many small experts"),
        _shape(128, 32, 4, 256, 192, "zipf", label="many small experts, a few popular"),
        _shape(61, 5, 2, 130, 77, "zipf", "nightly", "ragged in every axis"),
        _shape(1, 16, 4, 256, 256, "uniform", "nightly", "decode, one token"),
        _shape(512, 8, 2, 256, 384, "uniform", "nightly", "prefill"),
        *cuda_shapes("moe_layer"),
    ),
)
