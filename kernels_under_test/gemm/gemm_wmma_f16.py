"""The half-precision wmma GEMM of `gemm_wmma_f16.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_f16, blocks, cuda_launch, read_f16
from .problem import GEMM, sizes

TILE, THREADS = 128, 256


@implementation(
    "gemm_wmma_f16",
    problem=GEMM,
    device="cuda",
    dtype="f16",
    sources=("gemm_wmma_f16.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    m, n, k = sizes(axes)
    out = cupy.empty((m, n), "float16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(n, TILE), blocks(m, TILE))
        return [Step("gemm_wmma_f16", grid, THREADS, (held["a"], held["w"], out, m, n, k))]

    return cuda_launch(ctx, inputs, convert=as_f16("a", "w"), steps=steps, output=read_f16(out))
