"""The activation of `silu_mul_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .pieces_problem import ACTIVATION


@implementation("silu_mul_f32", problem=ACTIVATION, device="cpu", dtype="f32", sources=("silu_mul_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("both",))
    shape = (int(axes["rows"]), int(axes["i"]))
    return c_launch(ctx, "silu_mul_f32", values=values, out=aligned(shape), sizes=shape, load=load)
