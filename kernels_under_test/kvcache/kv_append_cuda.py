"""The append of `kv_append_cuda.cu`; the cache starts empty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, cuda_launch, read_bf16
from .problem import APPEND, append_sizes

THREADS = 128


@implementation(
    "kv_append_bf16_cuda",
    problem=APPEND,
    device="cuda",
    dtype="bf16",
    sources=("kv_append_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    t, slots, width = append_sizes(axes)
    cache = cupy.zeros((slots, width), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        return [Step("kv_append_bf16", (t,), THREADS, (held["fresh"], held["slot"], cache, width))]

    return cuda_launch(
        ctx,
        inputs,
        convert=as_bf16("fresh", plain=("slot",)),
        steps=steps,
        output=read_bf16(cache),
        reset=lambda: cache.fill(0),
    )
