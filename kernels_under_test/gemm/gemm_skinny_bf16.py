"""The bfloat16 GEMM for a few rows of `gemm_skinny_bf16.c`."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, aligned_copy, bf16_bits, c_launch, from_bf16_bits
from .problem import GEMM, sizes

MOST_ROWS = 16


@implementation(
    "gemm_skinny_bf16",
    problem=GEMM,
    device="cpu",
    dtype="bf16",
    sources=("gemm_skinny_bf16.c",),
    supports=lambda axes: int(axes["m"]) <= MOST_ROWS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Store everything as bfloat16 bits; the output is widened only when it is looked at."""
    m, n, k = sizes(axes)
    values = {name: aligned_copy(bf16_bits(inputs[name])) for name in ("a", "w")}
    out = aligned((m, n), np.uint16)

    def load(fresh: Inputs) -> None:
        for name, array in values.items():
            array[...] = bf16_bits(fresh[name])

    return c_launch(
        ctx,
        "gemm_skinny_bf16",
        values=values,
        out=out,
        sizes=(m, n, k),
        load=load,
        output=lambda: from_bf16_bits(out),
    )
