"""Control: attention as two matrix products with the whole score matrix between them, in NumPy."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, aligned_copy
from .problem import PREFILL, sizes


@implementation("attention_f32_numpy", problem=PREFILL, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Every intermediate array is ready before the first launch."""
    b, hq, hkv, sq, skv, d = sizes(axes)
    q = aligned_copy(inputs["q"].reshape(b, hkv, hq // hkv, sq, d))
    k, v = (aligned_copy(inputs[name][:, :, None]) for name in ("k", "v"))
    scores, out = aligned((b, hkv, hq // hkv, sq, skv)), aligned((b, hkv, hq // hkv, sq, d))
    mask = np.triu(np.full((sq, skv), -np.inf, np.float32), skv - sq + 1) if axes["causal"] else None
    scale = np.float32(d**-0.5)

    def run() -> None:
        np.matmul(q, k.swapaxes(-1, -2), out=scores)
        np.multiply(scores, scale, out=scores)
        if mask is not None:
            np.add(scores, mask, out=scores)
        np.subtract(scores, scores.max(-1, keepdims=True), out=scores)
        np.exp(scores, out=scores)
        np.divide(scores, scores.sum(-1, keepdims=True), out=scores)
        np.matmul(scores, v, out=out)

    def load(fresh: Inputs) -> None:
        q[...] = fresh["q"].reshape(q.shape)
        k[...], v[...] = fresh["k"][:, :, None], fresh["v"][:, :, None]

    return Launch(
        run=run, output=lambda: out.reshape(b, hq, sq, d), load=load, facts={"symbol": "unfused", "backend": "numpy"}
    )
