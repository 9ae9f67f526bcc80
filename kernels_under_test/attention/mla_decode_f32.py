"""The MLA decode of `mla_decode_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .decode_problem import LATENT, MLA, mla_scale, mla_sizes


@implementation("mla_decode_f32", problem=MLA, device="cpu", dtype="f32", sources=("mla_decode_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    values, load = hold(inputs, ("q", "cache", "table"))
    b, h, _ = mla_sizes(axes)
    return c_launch(
        ctx,
        "mla_decode_f32",
        values=values,
        out=aligned((b, h, LATENT)),
        sizes=mla_sizes(axes),
        floats=(mla_scale(),),
        workspace=(),
        load=load,
    )
