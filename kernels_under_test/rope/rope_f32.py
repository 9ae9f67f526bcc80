"""The rotary embedding of `rope_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import ROPE, sizes


@implementation("rope_f32", problem=ROPE, device="cpu", dtype="f32", sources=("rope_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("x", "cosine", "sine"))
    return c_launch(ctx, "rope_f32", values=values, out=aligned(sizes(axes)), sizes=sizes(axes), load=load)
