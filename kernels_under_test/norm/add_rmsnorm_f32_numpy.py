"""Control: residual add and RMSNorm in NumPy, with ready buffers."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import ADD_RMSNORM, EPSILON, sizes


@implementation("add_rmsnorm_f32_numpy", problem=ADD_RMSNORM, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("x", "residual", "weight"))
    out = aligned((2, *sizes(axes)))

    def run() -> None:
        added, normed = out
        np.add(values["x"], values["residual"], out=added)
        mean = np.einsum("ij,ij->i", added, added)[:, None] / np.float32(added.shape[1])
        np.multiply(added, 1.0 / np.sqrt(mean + np.float32(EPSILON)), out=normed)
        np.multiply(normed, values["weight"], out=normed)

    return Launch(run=run, output=lambda: out, load=load, facts={"backend": "numpy"})
