"""The gather of `kv_gather_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import GATHER, gather_sizes


@implementation("kv_gather_f32", problem=GATHER, device="cpu", dtype="f32", sources=("kv_gather_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("cache", "table"))
    b, kv, _, width = gather_sizes(axes)
    out = aligned((b, kv, width))
    return c_launch(ctx, "kv_gather_f32", values=values, out=out, sizes=gather_sizes(axes), load=load)
