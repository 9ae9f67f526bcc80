"""The batched product of `gemm_batched_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .batched_problem import BATCHED, sizes

TILE, THREADS, MOST_BATCHES = 64, 128, 65535


@implementation(
    "gemm_batched_bf16_cuda",
    problem=BATCHED,
    device="cuda",
    dtype="bf16",
    sources=("gemm_batched_cuda.cu",),
    requires=("cupy",),
    supports=lambda axes: int(axes["b"]) <= MOST_BATCHES,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    b, m, n, k = sizes(axes)
    out = cupy.empty((b, m, n), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(n, TILE), blocks(m, TILE), b)
        return [Step("gemm_batched_bf16", grid, THREADS, (held["a"], held["w"], out, m, n, k))]

    return cuda_launch(ctx, inputs, convert=as_bf16("a", "w"), steps=steps, output=read_bf16(out))
