"""The fused residual add and RMSNorm of `add_rmsnorm_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, cuda_launch, read_bf16
from .problem import ADD_RMSNORM, EPSILON, sizes

THREADS = 256


@implementation(
    "add_rmsnorm_bf16_cuda",
    problem=ADD_RMSNORM,
    device="cuda",
    dtype="bf16",
    sources=("add_rmsnorm_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    rows, cols = sizes(axes)
    out = cupy.empty((2, rows, cols), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        arguments = (held["x"], held["residual"], held["weight"], out, rows, cols, EPSILON)
        return [Step("add_rmsnorm_bf16", (rows,), THREADS, arguments)]

    return cuda_launch(ctx, inputs, convert=as_bf16("x", "residual", "weight"), steps=steps, output=read_bf16(out))
