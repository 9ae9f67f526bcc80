"""The pieces of a mixture-of-experts layer, timed apart: gate, permute, grouped product, activation, unpermute."""

from __future__ import annotations

import itertools

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes
from .problem import BYTES, experts_touched, route


def exact(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """A copy changes nothing."""
    return Tolerance(rtol=0.0, atol=0.0, rel_l2=0.0)


def close(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """A few roundings, or a sum over the hidden size."""
    return Tolerance(rtol=2e-5, atol=2e-5, rel_l2=1e-5) if dtype == "f32" else Tolerance(1.6e-2, 1e-2, 5e-3)


def summed(dtype: str, axes: Axes) -> Tolerance:
    """Rounding of a sum over k terms in [-1, 1]."""
    if dtype == "f32":
        return Tolerance(rtol=1e-5, atol=int(axes["k"]) * 2.0**-23, rel_l2=2e-6)
    return close(dtype, axes)


def routing_sizes(axes: Axes) -> tuple[int, int, int, int]:
    """Tokens, experts, experts per token, hidden size."""
    return int(axes["t"]), int(axes["e"]), int(axes["topk"]), int(axes["h"])


def gate_sizes(axes: Axes) -> tuple[int, int, int]:
    """Tokens, experts, experts per token."""
    return int(axes["t"]), int(axes["e"]), int(axes["topk"])


def router_logits(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Normal logits."""
    return {"logits": rng.standard_normal((int(axes["t"]), int(axes["e"])), dtype=np.float32)}


def gate(values: Inputs, axes: Axes) -> Array:
    """[experts, weights] of each token, stacked: [2, t, topk]."""
    return np.stack(route(values["logits"], int(axes["topk"])))


def permute_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Tokens and the experts that a gate chose for them."""
    t, e, topk, h = routing_sizes(axes)
    chosen = np.argsort(rng.random((t, e)), axis=1)[:, :topk]
    return {"x": rng.standard_normal((t, h), dtype=np.float32), "experts": chosen.astype(np.int32)}


def permute(values: Inputs, axes: Axes) -> Array:
    """The tokens' rows, sorted by expert, in token order within an expert."""
    order = np.argsort(values["experts"], axis=None, kind="stable")
    return values["x"][order // int(axes["topk"])]


def unpermute_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Rows sorted by expert, where each (token, slot) finds its row, and the gate's weights."""
    t, _, topk, h = routing_sizes(axes)
    weights = rng.random((t, topk), dtype=np.float32)
    return {
        "rows": rng.standard_normal((t * topk, h), dtype=np.float32),
        "place": rng.permutation(t * topk).reshape(t, topk).astype(np.int32),
        "weights": weights / weights.sum(1, keepdims=True, dtype=np.float32),
    }


def unpermute(values: Inputs, axes: Axes) -> Array:  # noqa: ARG001
    """The weighted sum of each token's rows."""
    return np.asarray((values["rows"][values["place"]] * values["weights"][..., None]).sum(1))


def grouped_sizes(axes: Axes) -> tuple[int, int, int, int]:
    """Experts, rows of all experts together, inner and outer size."""
    return int(axes["e"]), int(axes["rows"]), int(axes["k"]), int(axes["n"])


def grouped_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Experts get unequal shares of the rows (some none): `start` holds where each begins."""
    e, rows, k, n = grouped_sizes(axes)
    shares = rng.multinomial(rows, rng.dirichlet(np.full(e, 0.7)))
    return {
        "x": rng.uniform(-1.0, 1.0, (rows, k)).astype(np.float32),
        "start": np.concatenate([[0], np.cumsum(shares)]).astype(np.int32),
        "w": rng.uniform(-1.0, 1.0, (e, k, n)).astype(np.float32),
    }


def grouped(values: Inputs, axes: Axes) -> Array:
    """Each expert's rows times its weights."""
    start = values["start"]
    parts = [values["x"][a:b] @ values["w"][i] for i, (a, b) in enumerate(itertools.pairwise(start))]
    return np.concatenate(parts).reshape(int(axes["rows"]), int(axes["n"]))


def grouped_bytes(axes: Axes, dtype: str) -> float:
    """Rows in and out, and the weights of the experts that a uniform choice would touch."""
    e, rows, k, n = grouped_sizes(axes)
    return float((rows * (k + n) + experts_touched(rows, e, 1) * k * n) * BYTES[dtype])


def activation_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Gate columns, then up columns."""
    return {"both": 2 * rng.standard_normal((int(axes["rows"]), 2 * int(axes["i"])), dtype=np.float32)}


def silu_mul(values: Inputs, axes: Axes) -> Array:
    """silu(gate) * up (SwiGLU, Shazeer 2020)."""
    gate_columns, up = np.split(values["both"], 2, axis=1)
    del axes
    return gate_columns / (1 + np.exp(-gate_columns)) * up


def _routing(t: int, e: int, topk: int, h: int, *, tier: str = "core", label: str = "") -> Workload:
    return Workload(axes={"t": t, "e": e, "topk": topk, "h": h}, tier=tier, label=label)


ROUTING_SHAPES = (
    _routing(512, 64, 8, 1024, label="prefill"),
    _routing(16, 128, 8, 2048, tier="nightly", label="decode"),
    _routing(37, 5, 2, 77, tier="nightly", label="ragged"),
)

GATE = Problem(
    name="moe_gate",
    family="moe",
    axes=("t", "e", "topk"),
    inputs=router_logits,
    reference=gate,
    flops=lambda axes: 4.0 * int(axes["t"]) * int(axes["e"]),
    bytes=lambda axes, _: float(int(axes["t"]) * (4 * int(axes["e"]) + 8 * int(axes["topk"]))),
    tolerance=close,
    workloads=(
        Workload(axes={"t": 2048, "e": 128, "topk": 8}, label="Qwen3-30B-A3B"),
        Workload(axes={"t": 64, "e": 256, "topk": 8}, tier="nightly", label="DeepSeek-V3"),
        Workload(axes={"t": 33, "e": 5, "topk": 2}, tier="nightly", label="ragged"),
        *cuda_shapes("moe_gate"),
    ),
)
PERMUTE = Problem(
    name="moe_permute",
    family="moe",
    axes=("t", "e", "topk", "h"),
    inputs=permute_inputs,
    reference=permute,
    flops=lambda _: 0.0,
    bytes=lambda axes, dtype: float(int(axes["t"]) * (1 + int(axes["topk"])) * int(axes["h"]) * BYTES[dtype]),
    tolerance=exact,
    workloads=(*ROUTING_SHAPES, *cuda_shapes("moe_permute")),
)
UNPERMUTE = Problem(
    name="moe_unpermute",
    family="moe",
    axes=("t", "e", "topk", "h"),
    inputs=unpermute_inputs,
    reference=unpermute,
    flops=lambda axes: 2.0 * int(axes["t"]) * int(axes["topk"]) * int(axes["h"]),
    bytes=lambda axes, dtype: float(int(axes["t"]) * (1 + int(axes["topk"])) * int(axes["h"]) * BYTES[dtype]),
    tolerance=close,
    workloads=(*ROUTING_SHAPES, *cuda_shapes("moe_unpermute")),
)
GROUPED = Problem(
    name="moe_grouped_gemm",
    family="moe",
    axes=("e", "rows", "k", "n"),
    inputs=grouped_inputs,
    reference=grouped,
    flops=lambda axes: 2.0 * int(axes["rows"]) * int(axes["k"]) * int(axes["n"]),
    bytes=grouped_bytes,
    tolerance=summed,
    workloads=(
        Workload(axes={"e": 8, "rows": 256, "k": 256, "n": 768}, label="few large experts"),
        Workload(axes={"e": 32, "rows": 64, "k": 512, "n": 256}, tier="nightly", label="many small experts"),
        Workload(axes={"e": 5, "rows": 61, "k": 130, "n": 77}, tier="nightly", label="ragged"),
        *cuda_shapes("moe_grouped_gemm"),
    ),
)
ACTIVATION = Problem(
    name="silu_mul",
    family="moe",
    axes=("rows", "i"),
    inputs=activation_inputs,
    reference=silu_mul,
    flops=lambda axes: 5.0 * int(axes["rows"]) * int(axes["i"]),
    bytes=lambda axes, dtype: 3.0 * int(axes["rows"]) * int(axes["i"]) * BYTES[dtype],
    tolerance=close,
    workloads=(
        Workload(axes={"rows": 1024, "i": 1024}, label="prefill"),
        Workload(axes={"rows": 8, "i": 2048}, tier="nightly", label="decode"),
        Workload(axes={"rows": 7, "i": 77}, tier="nightly", label="ragged"),
        *cuda_shapes("silu_mul"),
    ),
)
