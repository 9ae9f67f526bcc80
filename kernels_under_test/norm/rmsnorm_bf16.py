"""The RMSNorm in bfloat16 storage of `rmsnorm_bf16.c`."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, aligned_copy, bf16_bits, c_launch, from_bf16_bits
from .problem import EPSILON, RMSNORM, sizes


@implementation("rmsnorm_bf16", problem=RMSNORM, device="cpu", dtype="bf16", sources=("rmsnorm_bf16.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Store everything as bfloat16 bits; the output is widened only when it is looked at."""
    values = {name: aligned_copy(bf16_bits(inputs[name])) for name in ("x", "weight")}
    out = aligned(sizes(axes), np.uint16)

    def load(fresh: Inputs) -> None:
        for name, array in values.items():
            array[...] = bf16_bits(fresh[name])

    return c_launch(
        ctx,
        "rmsnorm_bf16",
        values=values,
        out=out,
        sizes=sizes(axes),
        floats=(EPSILON,),
        load=load,
        output=lambda: from_bf16_bits(out),
    )
