"""The grouped mixture-of-experts layer of `moe_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import LAYER, sizes


@implementation("moe_f32", problem=LAYER, device="cpu", dtype="f32", sources=("moe_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    values, load = hold(inputs, ("x", "logits", "up_gate", "down"))
    out = aligned(values["x"].shape)
    return c_launch(ctx, "moe_f32", values=values, out=out, sizes=sizes(axes), workspace=sizes(axes), load=load)
