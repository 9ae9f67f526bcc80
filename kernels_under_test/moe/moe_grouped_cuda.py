"""The grouped product of `moe_grouped_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .pieces_problem import GROUPED, grouped_sizes

TILE, THREADS = 64, 128


@implementation(
    "moe_grouped_bf16_cuda",
    problem=GROUPED,
    device="cuda",
    dtype="bf16",
    sources=("moe_grouped_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    e, rows, k, n = grouped_sizes(axes)
    out = cupy.empty((rows, n), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(n, TILE), blocks(rows, TILE), e)
        return [Step("moe_grouped_bf16", grid, THREADS, (held["x"], held["start"], held["w"], out, k, n))]

    return cuda_launch(ctx, inputs, convert=as_bf16("x", "w", plain=("start",)), steps=steps, output=read_bf16(out))
