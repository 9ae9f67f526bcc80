"""The decode attention of `attention_decode_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .decode_problem import DECODE, gqa_sizes


@implementation("attention_decode_f32", problem=DECODE, device="cpu", dtype="f32", sources=("attention_decode_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    values, load = hold(inputs, ("q", "k", "v", "table"))
    b, _, hkv, kv, d, _ = gqa_sizes(axes)
    return c_launch(
        ctx,
        "attention_decode_f32",
        values=values,
        out=aligned(values["q"].shape),
        sizes=gqa_sizes(axes),
        floats=(d**-0.5,),
        workspace=(b, hkv, kv),
        load=load,
    )
