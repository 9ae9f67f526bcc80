"""Control: softmax in NumPy, with ready buffers."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import SOFTMAX, sizes


@implementation("softmax_f32_numpy", problem=SOFTMAX, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("x",))
    out = aligned(sizes(axes))

    def run() -> None:
        x = values["x"]
        np.subtract(x, x.max(-1, keepdims=True), out=out)
        np.exp(out, out=out)
        np.divide(out, out.sum(-1, keepdims=True), out=out)

    return Launch(run=run, output=lambda: out, load=load, facts={"backend": "numpy"})
