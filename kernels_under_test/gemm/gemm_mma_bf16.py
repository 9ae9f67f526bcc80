"""The mma.sync GEMM of `gemm_mma_bf16.cu`; rows are copied 16 bytes at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .problem import GEMM, sizes

TILE, THREADS = 128, 256
SHARED_BYTES = 4 * 2 * TILE * 32 * 2  # stages, operands, rows, depth, bytes


@implementation(
    "gemm_mma_bf16",
    problem=GEMM,
    device="cuda",
    dtype="bf16",
    sources=("gemm_mma_bf16.cu",),
    requires=("cupy",),
    supports=lambda axes: int(axes["n"]) % 8 == 0 and int(axes["k"]) % 8 == 0,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    m, n, k = sizes(axes)
    out = cupy.empty((m, n), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(n, TILE), blocks(m, TILE))
        return [Step("gemm_mma_bf16", grid, THREADS, (held["a"], held["w"], out, m, n, k), shared_bytes=SHARED_BYTES)]

    return cuda_launch(ctx, inputs, convert=as_bf16("a", "w"), steps=steps, output=read_bf16(out))
