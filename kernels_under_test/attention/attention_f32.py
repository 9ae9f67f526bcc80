"""The flash-style attention of `attention_f32.c`."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import FLOAT, INT, LONG, POINTER, BoundCall, aligned, aligned_copy, function
from .problem import PREFILL, sizes

HEAD_STEP, HEAD_LIMIT = 32, 256


def supports(axes: Axes) -> bool:
    """Head sizes that are whole register tiles."""
    return int(axes["d"]) % HEAD_STEP == 0 and int(axes["d"]) <= HEAD_LIMIT


@implementation(
    "attention_f32", problem=PREFILL, device="cpu", dtype="f32", sources=("attention_f32.c",), supports=supports
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    library = ctx.library()
    call = function(library, "attention_f32", (POINTER,) * 4 + (LONG,) * 6 + (INT, FLOAT, POINTER, INT))
    b, hq, hkv, sq, skv, d = sizes(axes)
    size_bytes = function(library, "attention_f32_workspace", (LONG, LONG, INT), LONG)(skv, d, ctx.threads)
    workspace = aligned(size_bytes, np.uint8)
    held = {name: aligned_copy(inputs[name]) for name in ("q", "k", "v")}
    out = aligned((b, hq, sq, d))

    def load(fresh: Inputs) -> None:
        for name, array in held.items():
            array[...] = fresh[name]

    run = BoundCall(
        call, *held.values(), out, b, hq, hkv, sq, skv, d, int(axes["causal"]), d**-0.5, workspace, ctx.threads
    )
    return Launch(run=run, output=lambda: out, load=load, facts={"symbol": "attention_f32", "backend": "c"})
