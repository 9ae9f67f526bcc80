"""The softmax of `softmax_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import SOFTMAX, sizes


@implementation("softmax_f32", problem=SOFTMAX, device="cpu", dtype="f32", sources=("softmax_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("x",))
    return c_launch(ctx, "softmax_f32", values=values, out=aligned(sizes(axes)), sizes=sizes(axes), load=load)
