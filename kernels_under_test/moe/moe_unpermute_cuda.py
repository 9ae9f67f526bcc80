"""The weighted sum of `moe_unpermute_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, cuda_launch, read_bf16
from .pieces_problem import UNPERMUTE, routing_sizes

THREADS = 256


@implementation(
    "moe_unpermute_bf16_cuda",
    problem=UNPERMUTE,
    device="cuda",
    dtype="bf16",
    sources=("moe_unpermute_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    t, _, topk, h = routing_sizes(axes)
    out = cupy.empty((t, h), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        arguments = (held["rows"], held["place"], held["weights"], out, topk, h)
        return [Step("moe_unpermute_bf16", (t,), THREADS, arguments)]

    return cuda_launch(
        ctx, inputs, convert=as_bf16("rows", "weights", plain=("place",)), steps=steps, output=read_bf16(out)
    )
