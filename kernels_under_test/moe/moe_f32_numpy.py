"""Control: a loop over the experts with NumPy's BLAS for the products."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, aligned_copy
from .problem import LAYER, route


@implementation("moe_f32_numpy", problem=LAYER, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Route, group by expert, multiply, add up."""
    held = {name: aligned_copy(inputs[name]) for name in ("x", "logits", "up_gate", "down")}
    out = aligned(held["x"].shape)
    x, logits, up_gate, down = held.values()
    experts, topk, i = int(axes["e"]), int(axes["topk"]), int(axes["i"])

    def run() -> None:
        chosen, weights = route(logits, topk)
        order = np.argsort(chosen, axis=None, kind="stable")
        start = np.searchsorted(chosen.ravel()[order], np.arange(experts + 1))
        out.fill(0.0)
        for expert in range(experts):
            rows = order[start[expert] : start[expert + 1]]
            if rows.size:
                both = x[rows // topk] @ up_gate[expert]
                gate, up = both[:, :i], both[:, i:]
                result = (gate / (1 + np.exp(-gate)) * up) @ down[expert]
                out[rows // topk] += weights.ravel()[rows, None] * result

    def load(fresh: Inputs) -> None:
        for name, array in held.items():
            array[...] = fresh[name]

    return Launch(run=run, output=lambda: out, load=load, facts={"symbol": "expert_loop", "backend": "numpy"})
