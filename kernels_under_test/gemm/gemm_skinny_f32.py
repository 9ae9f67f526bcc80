"""The GEMM for a few rows of `gemm_skinny_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import GEMM, sizes

MOST_ROWS = 16


@implementation(
    "gemm_skinny_f32",
    problem=GEMM,
    device="cpu",
    dtype="f32",
    sources=("gemm_skinny_f32.c",),
    supports=lambda axes: int(axes["m"]) <= MOST_ROWS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("a", "w"))
    m, n, k = sizes(axes)
    return c_launch(ctx, "gemm_skinny_f32", values=values, out=aligned((m, n)), sizes=(m, n, k), load=load)
