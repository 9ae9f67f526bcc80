"""The permutation of `moe_permute_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .pieces_problem import PERMUTE, routing_sizes


@implementation("moe_permute_f32", problem=PERMUTE, device="cpu", dtype="f32", sources=("moe_permute_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("x", "experts"))
    t, e, topk, h = routing_sizes(axes)
    return c_launch(
        ctx,
        "moe_permute_f32",
        values=values,
        out=aligned((t * topk, h)),
        sizes=(t, e, topk, h),
        workspace=(t, e, topk),
        load=load,
    )
