"""The packed, register-tiled GEMM of `gemm_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import GEMM, sizes

LEAST_ROWS = 32  # below, `gemm_skinny_f32` is the kernel to take


@implementation(
    "gemm_f32",
    problem=GEMM,
    device="cpu",
    dtype="f32",
    sources=("gemm_f32.c",),
    supports=lambda axes: int(axes["m"]) >= LEAST_ROWS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays and its workspace."""
    values, load = hold(inputs, ("a", "w"))
    m, n, k = sizes(axes)
    return c_launch(ctx, "gemm_f32", values=values, out=aligned((m, n)), sizes=(m, n, k), workspace=(), load=load)
