"""The GEMM for a few rows of `gemm_skinny_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .problem import GEMM, sizes

MOST_ROWS, COLUMNS_PER_BLOCK, THREADS = 16, 4, 128


@implementation(
    "gemm_skinny_bf16_cuda",
    problem=GEMM,
    device="cuda",
    dtype="bf16",
    sources=("gemm_skinny_cuda.cu",),
    requires=("cupy",),
    supports=lambda axes: int(axes["m"]) <= MOST_ROWS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    m, n, k = sizes(axes)
    out = cupy.empty((m, n), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(n, COLUMNS_PER_BLOCK),)
        return [Step("gemm_skinny_bf16", grid, THREADS, (held["a"], held["w"], out, m, n, k))]

    return cuda_launch(ctx, inputs, convert=as_bf16("a", "w"), steps=steps, output=read_bf16(out))
