"""Control: the expression in NumPy."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Context, Inputs, Launch, implementation

from .._arrays import hold
from .pieces_problem import ACTIVATION, silu_mul


@implementation("silu_mul_f32_numpy", problem=ACTIVATION, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("both",))
    made: dict[str, Array] = {}

    def run() -> None:
        made["out"] = np.asarray(silu_mul(values, axes))

    return Launch(run=run, output=lambda: made["out"], load=load, facts={"backend": "numpy"})
