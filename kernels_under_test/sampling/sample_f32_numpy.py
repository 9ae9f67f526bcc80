"""Control: partition, sort the k best, cumulate, in NumPy."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Context, Inputs, Launch, implementation

from .._arrays import hold
from .problem import SAMPLING, sizes


@implementation("sample_f32_numpy", problem=SAMPLING, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("logits", "draw"))
    rows, vocab, k = sizes(axes)
    made: dict[str, Array] = {}

    def run() -> None:
        kept = np.argpartition(values["logits"], vocab - k, axis=1)[:, vocab - k :]
        best = np.take_along_axis(values["logits"], kept, 1)
        order = np.argsort(-best, axis=1)
        best, kept = np.take_along_axis(best, order, 1), np.take_along_axis(kept, order, 1)
        weights = np.exp(best - best[:, :1])
        reached = np.cumsum(weights / weights.sum(1, keepdims=True), axis=1)
        count = np.minimum(1 + (reached < float(axes["p"])).sum(1, keepdims=True), k)
        mass = np.take_along_axis(reached, count - 1, 1)
        chosen = np.minimum((reached <= values["draw"][:, None] * mass).sum(1), k - 1)
        made["tokens"] = kept[np.arange(rows), chosen]

    return Launch(run=run, output=lambda: made["tokens"], load=load, facts={"backend": "numpy"})
