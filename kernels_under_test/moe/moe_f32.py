"""The grouped mixture-of-experts layer of `moe_f32.c`."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import INT, LONG, POINTER, BoundCall, aligned, aligned_copy, function
from .problem import LAYER, sizes


@implementation("moe_f32", problem=LAYER, device="cpu", dtype="f32", sources=("moe_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    library = ctx.library()
    call = function(library, "moe_f32", (POINTER,) * 5 + (LONG,) * 5 + (POINTER, INT))
    size_bytes = function(library, "moe_f32_workspace", (LONG,) * 5 + (INT,), LONG)(*sizes(axes), ctx.threads)
    workspace = aligned(size_bytes, np.uint8)
    held = {name: aligned_copy(inputs[name]) for name in ("x", "logits", "up_gate", "down")}
    out = aligned(held["x"].shape)

    def load(fresh: Inputs) -> None:
        for name, array in held.items():
            array[...] = fresh[name]

    run = BoundCall(call, *held.values(), out, *sizes(axes), workspace, ctx.threads)
    return Launch(run=run, output=lambda: out, load=load, facts={"symbol": "moe_f32", "backend": "c"})
