"""The grouped product of `moe_grouped_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .pieces_problem import GROUPED, grouped_sizes


@implementation("moe_grouped_f32", problem=GROUPED, device="cpu", dtype="f32", sources=("moe_grouped_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("x", "start", "w"))
    _, rows, _, n = grouped_sizes(axes)
    return c_launch(
        ctx,
        "moe_grouped_f32",
        values=values,
        out=aligned((rows, n)),
        sizes=grouped_sizes(axes),
        workspace=(rows, n),
        load=load,
    )
