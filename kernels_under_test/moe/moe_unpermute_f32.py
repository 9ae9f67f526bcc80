"""The weighted sum of `moe_unpermute_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .pieces_problem import UNPERMUTE, routing_sizes


@implementation("moe_unpermute_f32", problem=UNPERMUTE, device="cpu", dtype="f32", sources=("moe_unpermute_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("rows", "place", "weights"))
    t, _, topk, h = routing_sizes(axes)
    return c_launch(ctx, "moe_unpermute_f32", values=values, out=aligned((t, h)), sizes=(t, topk, h), load=load)
