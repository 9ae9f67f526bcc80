"""The flash-style attention of `attention_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import PREFILL, sizes

HEAD_STEP, HEAD_LIMIT = 32, 256


def supports(axes: Axes) -> bool:
    """Head sizes that are whole register tiles."""
    return int(axes["d"]) % HEAD_STEP == 0 and int(axes["d"]) <= HEAD_LIMIT


@implementation(
    "attention_f32", problem=PREFILL, device="cpu", dtype="f32", sources=("attention_f32.c",), supports=supports
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    values, load = hold(inputs, ("q", "k", "v"))
    b, hq, hkv, sq, skv, d = sizes(axes)
    return c_launch(
        ctx,
        "attention_f32",
        values=values,
        out=aligned((b, hq, sq, d)),
        sizes=(b, hq, hkv, sq, skv, d, int(axes["causal"])),
        floats=(d**-0.5,),
        workspace=(skv, d),
        load=load,
    )
