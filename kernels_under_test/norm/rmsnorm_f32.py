"""The RMSNorm of `rmsnorm_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import EPSILON, RMSNORM, sizes


@implementation("rmsnorm_f32", problem=RMSNORM, device="cpu", dtype="f32", sources=("rmsnorm_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("x", "weight"))
    return c_launch(
        ctx, "rmsnorm_f32", values=values, out=aligned(sizes(axes)), sizes=sizes(axes), floats=(EPSILON,), load=load
    )
