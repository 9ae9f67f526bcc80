"""Control: RMSNorm in NumPy, with ready buffers."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import EPSILON, RMSNORM, sizes


@implementation("rmsnorm_f32_numpy", problem=RMSNORM, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("x", "weight"))
    out = aligned(sizes(axes))

    def run() -> None:
        x = values["x"]
        mean = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1])
        np.multiply(x, 1.0 / np.sqrt(mean + np.float32(EPSILON)), out=out)
        np.multiply(out, values["weight"], out=out)

    return Launch(run=run, output=lambda: out, load=load, facts={"backend": "numpy"})
