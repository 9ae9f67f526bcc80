"""The softmax of `softmax_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_is, cuda_launch
from .problem import SOFTMAX, sizes

THREADS = 256


@implementation(
    "softmax_f32_cuda",
    problem=SOFTMAX,
    device="cuda",
    dtype="f32",
    sources=("softmax_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    rows, cols = sizes(axes)
    out = cupy.empty((rows, cols), "float32")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        return [Step("softmax_f32", (rows,), THREADS, (held["x"], out, cols))]

    return cuda_launch(ctx, inputs, convert=as_is("x"), steps=steps, output=out.get)
