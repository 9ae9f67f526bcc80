"""The batched GEMM of `gemm_batched_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .batched_problem import BATCHED, sizes


@implementation("gemm_batched_f32", problem=BATCHED, device="cpu", dtype="f32", sources=("gemm_batched_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    values, load = hold(inputs, ("a", "w"))
    b, m, n, _ = sizes(axes)
    out = aligned((b, m, n))
    return c_launch(ctx, "gemm_batched_f32", values=values, out=out, sizes=sizes(axes), workspace=(), load=load)
