"""Control: an indexed read and a sum in NumPy."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Context, Inputs, Launch, implementation

from .._arrays import hold
from .pieces_problem import UNPERMUTE, unpermute


@implementation("moe_unpermute_f32_numpy", problem=UNPERMUTE, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("rows", "place", "weights"))
    made: dict[str, Array] = {}

    def run() -> None:
        made["out"] = np.asarray(unpermute(values, axes))

    return Launch(run=run, output=lambda: made["out"], load=load, facts={"backend": "numpy"})
