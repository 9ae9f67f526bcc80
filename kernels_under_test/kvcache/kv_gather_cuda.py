"""The gather of `kv_gather_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, cuda_launch, read_bf16
from .problem import GATHER, gather_sizes

THREADS = 128


@implementation(
    "kv_gather_bf16_cuda",
    problem=GATHER,
    device="cuda",
    dtype="bf16",
    sources=("kv_gather_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    b, kv, page, width = gather_sizes(axes)
    out = cupy.empty((b, kv, width), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        arguments = (held["cache"], held["table"], out, kv, page, width)
        return [Step("kv_gather_bf16", (b * kv,), THREADS, arguments)]

    return cuda_launch(ctx, inputs, convert=as_bf16("cache", plain=("table",)), steps=steps, output=read_bf16(out))
