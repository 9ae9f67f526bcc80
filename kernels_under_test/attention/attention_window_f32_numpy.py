"""Control: the whole score matrix with a mask, in NumPy."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import sizes
from .window_problem import WINDOW, hidden_pairs


@implementation("attention_window_f32_numpy", problem=WINDOW, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Every intermediate array is ready before the first launch."""
    values, load = hold(inputs, ("q", "k", "v", "sinks"))
    b, hq, hkv, sq, skv, d = sizes(axes)
    grouped = (b, hkv, hq // hkv)
    q, k, v = values["q"].reshape(*grouped, sq, d), values["k"][:, :, None], values["v"][:, :, None]
    sinks = values["sinks"].reshape(1, hkv, hq // hkv, 1, 1)
    scores, out = aligned((*grouped, sq, skv)), aligned((*grouped, sq, d))
    mask = np.where(hidden_pairs(sq, skv, int(axes["window"])), np.float32(-np.inf), np.float32(0.0))

    def run() -> None:
        np.matmul(q, k.swapaxes(-1, -2), out=scores)
        np.multiply(scores, np.float32(d**-0.5), out=scores)
        np.add(scores, mask, out=scores)
        top = np.maximum(scores.max(-1, keepdims=True), sinks)
        np.exp(np.subtract(scores, top, out=scores), out=scores)
        np.divide(scores, scores.sum(-1, keepdims=True) + np.exp(sinks - top), out=scores)
        np.matmul(scores, v, out=out)

    return Launch(
        run=run, output=lambda: out.reshape(b, hq, sq, d), load=load, facts={"symbol": "unfused", "backend": "numpy"}
    )
