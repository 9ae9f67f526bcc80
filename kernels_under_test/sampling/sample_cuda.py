"""The sampling of `sample_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_is, cuda_launch
from .problem import SAMPLING, sizes

THREADS, MOST_KEPT = 512, 256


@implementation(
    "sample_f32_cuda",
    problem=SAMPLING,
    device="cuda",
    dtype="f32",
    sources=("sample_cuda.cu",),
    requires=("cupy",),
    supports=lambda axes: int(axes["k"]) <= MOST_KEPT,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    rows, vocab, k = sizes(axes)
    out = cupy.empty(rows, "int64")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        arguments = (held["logits"], held["draw"], out, vocab, k, float(axes["p"]))
        return [Step("sample_f32", (rows,), THREADS, arguments)]

    return cuda_launch(ctx, inputs, convert=as_is("logits", "draw"), steps=steps, output=out.get)
