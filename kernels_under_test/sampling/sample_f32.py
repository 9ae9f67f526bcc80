"""The sampling of `sample_f32.c`."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import SAMPLING, sizes


@implementation("sample_f32", problem=SAMPLING, device="cpu", dtype="f32", sources=("sample_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("logits", "draw"))
    out = aligned(sizes(axes)[0], np.int64)
    return c_launch(ctx, "sample_f32", values=values, out=out, sizes=sizes(axes), floats=(float(axes["p"]),), load=load)
