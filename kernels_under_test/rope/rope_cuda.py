"""The rotary embedding of `rope_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, cuda_launch, read_bf16
from .problem import ROPE, sizes

THREADS = 256


@implementation(
    "rope_bf16_cuda",
    problem=ROPE,
    device="cuda",
    dtype="bf16",
    sources=("rope_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    t, heads, d = sizes(axes)
    out = cupy.empty((t, heads, d), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        return [Step("rope_bf16", (t,), THREADS, (held["x"], held["cosine"], held["sine"], out, heads, d))]

    return cuda_launch(ctx, inputs, convert=as_bf16("x", "cosine", "sine"), steps=steps, output=read_bf16(out))
