"""The append of `kv_append_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import APPEND, append_sizes


@implementation("kv_append_f32", problem=APPEND, device="cpu", dtype="f32", sources=("kv_append_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function; fresh inputs start from an empty cache."""
    values, load_values = hold(inputs, ("fresh", "slot"))
    cache = aligned(append_sizes(axes)[1:])

    def load(fresh: Inputs) -> None:
        load_values(fresh)
        cache.fill(0.0)

    return c_launch(ctx, "kv_append_f32", values=values, out=cache, sizes=append_sizes(axes), load=load)
