"""The packed, register-tiled GEMM of `gemm_f32.c`."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import INT, LONG, POINTER, BoundCall, aligned, aligned_copy, function
from .problem import GEMM


@implementation("gemm_f32", problem=GEMM, device="cpu", dtype="f32", sources=("gemm_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    library = ctx.library()
    call = function(library, "gemm_f32", (POINTER,) * 3 + (LONG,) * 3 + (POINTER, INT))
    workspace = aligned(function(library, "gemm_f32_workspace", (INT,), LONG)(ctx.threads), np.uint8)
    a, w = aligned_copy(inputs["a"]), aligned_copy(inputs["w"])
    c = aligned((a.shape[0], w.shape[0]))

    def load(fresh: Inputs) -> None:
        a[...], w[...] = fresh["a"], fresh["w"]

    run = BoundCall(call, a, w, c, int(axes["m"]), int(axes["n"]), int(axes["k"]), workspace, ctx.threads)
    return Launch(run=run, output=lambda: c, load=load, facts={"symbol": "gemm_f32", "backend": "c"})
