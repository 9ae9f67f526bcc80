"""Attention of one new token over a paged cache: grouped heads, and multi-head latent attention (MLA, absorbed)."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Workload

from .._shapes import cuda_shapes
from .problem import BYTES, tolerance

LATENT, ROTARY = 512, 64
MLA_PAGE = 64


def gqa_sizes(axes: Axes) -> tuple[int, int, int, int, int, int]:
    """Sequences, query heads, key heads, cached tokens, head size, tokens of a page."""
    b, hq, hkv, kv, d, page = (int(axes[name]) for name in ("b", "hq", "hkv", "kv", "d", "page"))
    return b, hq, hkv, kv, d, page


def gqa_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Shuffled pages: k and v are [pages, page, hkv, d]; the table names the pages of each sequence."""
    b, hq, hkv, kv, d, page = gqa_sizes(axes)
    pages = -(-kv // page)
    shape = (b * pages, page, hkv, d)
    return {
        "q": rng.standard_normal((b, hq, d), dtype=np.float32),
        "k": rng.standard_normal(shape, dtype=np.float32),
        "v": rng.standard_normal(shape, dtype=np.float32),
        "table": rng.permutation(b * pages).reshape(b, pages).astype(np.int64),
    }


def weighted(scores: Array, v: Array) -> Array:
    """softmax(scores) v over the last axis of scores."""
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def gqa_reference(values: Inputs, axes: Axes) -> Array:
    """Sequence by sequence and group by group."""
    b, hq, hkv, kv, d, _ = gqa_sizes(axes)
    out = np.empty_like(values["q"])
    group = hq // hkv
    for batch, head in np.ndindex(b, hkv):
        k, v = (values[name][values["table"][batch]].reshape(-1, hkv, d)[:kv, head] for name in ("k", "v"))
        heads = slice(head * group, (head + 1) * group)
        out[batch, heads] = weighted(values["q"][batch, heads] @ k.T / np.sqrt(d), v)
    return out


def gqa_flops(axes: Axes) -> float:
    """Two products of 2 d for each head and cached token."""
    b, hq, _, kv, d, _ = gqa_sizes(axes)
    return float(b * hq * kv * 4 * d)


def gqa_bytes(axes: Axes, dtype: str) -> float:
    """The cache read once, and the queries and results."""
    b, hq, hkv, kv, d, _ = gqa_sizes(axes)
    return float((2 * b * kv * hkv * d + 2 * b * hq * d) * BYTES[dtype])


def mla_sizes(axes: Axes) -> tuple[int, int, int]:
    """Sequences, heads, cached tokens."""
    return int(axes["b"]), int(axes["h"]), int(axes["kv"])


def mla_inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """A cached row is the latent (512) and the rotary key (64), shared by all heads."""
    b, h, kv = mla_sizes(axes)
    pages = -(-kv // MLA_PAGE)
    return {
        "q": rng.standard_normal((b, h, LATENT + ROTARY), dtype=np.float32),
        "cache": rng.standard_normal((b * pages, MLA_PAGE, LATENT + ROTARY), dtype=np.float32),
        "table": rng.permutation(b * pages).reshape(b, pages).astype(np.int64),
    }


def mla_reference(values: Inputs, axes: Axes) -> Array:
    """Keys are whole rows, values their latent part; the scale is that of the uncompressed head (192)."""
    _, _, kv = mla_sizes(axes)
    rows = values["cache"][values["table"]].reshape(values["q"].shape[0], -1, LATENT + ROTARY)[:, :kv]
    return weighted(values["q"] @ rows.swapaxes(1, 2) * mla_scale(), rows[..., :LATENT])


def mla_scale() -> float:
    """1 / sqrt(128 + 64), the head size before absorption."""
    return float(192.0**-0.5)


def mla_flops(axes: Axes) -> float:
    """2 B Skv H (2 * 512 + 64)."""
    b, h, kv = mla_sizes(axes)
    return float(2 * b * kv * h * (2 * LATENT + ROTARY))


def mla_bytes(axes: Axes, dtype: str) -> float:
    """B (H 576 + Skv 576 + H 512) values."""
    b, h, kv = mla_sizes(axes)
    return float(b * (h * (2 * LATENT + ROTARY) + kv * (LATENT + ROTARY)) * BYTES[dtype])


def _gqa(*numbers: int, tier: str = "core", label: str = "") -> Workload:
    axes = dict(zip(("b", "hq", "hkv", "kv", "d", "page"), numbers, strict=True))
    return Workload(axes=axes, tier=tier, label=label)


DECODE = Problem(
    name="attention_decode",
    family="attention",
    axes=("b", "hq", "hkv", "kv", "d", "page"),
    inputs=gqa_inputs,
    reference=gqa_reference,
    flops=gqa_flops,
    bytes=gqa_bytes,
    tolerance=tolerance,
    workloads=(
        _gqa(4, 32, 8, 512, 128, 16, label="Llama-3-8B"),
        _gqa(1, 8, 1, 4099, 128, 64, tier="nightly", label="one long sequence, ragged"),
        _gqa(3, 4, 2, 37, 64, 16, tier="nightly", label="short, ragged"),
        *cuda_shapes("attention_decode"),
    ),
)
MLA = Problem(
    name="mla_decode",
    family="attention",
    axes=("b", "h", "kv"),
    inputs=mla_inputs,
    reference=mla_reference,
    flops=mla_flops,
    bytes=mla_bytes,
    tolerance=tolerance,
    workloads=(
        Workload(axes={"b": 4, "h": 16, "kv": 1024}, label="DeepSeek-V3, one of eight devices"),
        Workload(axes={"b": 1, "h": 128, "kv": 500}, tier="nightly", label="all heads, ragged"),
        Workload(axes={"b": 2, "h": 5, "kv": 67}, tier="nightly", label="odd heads, ragged"),
        *cuda_shapes("mla_decode"),
    ),
)
