"""The fused residual add and RMSNorm of `add_rmsnorm_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import ADD_RMSNORM, EPSILON, sizes


@implementation("add_rmsnorm_f32", problem=ADD_RMSNORM, device="cpu", dtype="f32", sources=("add_rmsnorm_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("x", "residual", "weight"))
    return c_launch(
        ctx,
        "add_rmsnorm_f32",
        values=values,
        out=aligned((2, *sizes(axes))),
        sizes=sizes(axes),
        floats=(EPSILON,),
        load=load,
    )
