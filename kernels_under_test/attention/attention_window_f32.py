"""The sliding-window attention of `attention_window_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import sizes
from .window_problem import WINDOW


@implementation("attention_window_f32", problem=WINDOW, device="cpu", dtype="f32", sources=("attention_window_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    values, load = hold(inputs, ("q", "k", "v", "sinks"))
    b, hq, hkv, sq, skv, d = sizes(axes)
    return c_launch(
        ctx,
        "attention_window_f32",
        values=values,
        out=aligned((b, hq, sq, d)),
        sizes=(b, hq, hkv, sq, skv, d, int(axes["window"])),
        floats=(d**-0.5,),
        workspace=(skv, d),
        load=load,
    )
