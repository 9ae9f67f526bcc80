"""The float32 GEMM without tensor cores of `gemm_tiled_f32.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_is, blocks, cuda_launch
from .problem import GEMM, sizes

TILE, THREADS = 64, 256


@implementation(
    "gemm_tiled_f32",
    problem=GEMM,
    device="cuda",
    dtype="f32",
    sources=("gemm_tiled_f32.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    m, n, k = sizes(axes)
    out = cupy.empty((m, n), "float32")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(n, TILE), blocks(m, TILE))
        return [Step("gemm_tiled_f32", grid, THREADS, (held["a"], held["w"], out, m, n, k))]

    return cuda_launch(ctx, inputs, convert=as_is("a", "w"), steps=steps, output=out.get)
