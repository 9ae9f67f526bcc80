"""The RMSNorm of `rmsnorm_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, cuda_launch, read_bf16
from .problem import EPSILON, RMSNORM, sizes

THREADS = 256


@implementation(
    "rmsnorm_bf16_cuda",
    problem=RMSNORM,
    device="cuda",
    dtype="bf16",
    sources=("rmsnorm_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    rows, cols = sizes(axes)
    out = cupy.empty((rows, cols), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        return [Step("rmsnorm_bf16", (rows,), THREADS, (held["x"], held["weight"], out, cols, EPSILON))]

    return cuda_launch(ctx, inputs, convert=as_bf16("x", "weight"), steps=steps, output=read_bf16(out))
