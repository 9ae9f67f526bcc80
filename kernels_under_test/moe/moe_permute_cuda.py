"""Sort tokens by expert with `moe_order_cuda.cu`, then copy their rows with `moe_gather_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, cuda_launch, read_bf16
from .pieces_problem import PERMUTE, routing_sizes

SORT_THREADS, THREADS = 512, 256


@implementation(
    "moe_permute_bf16_cuda",
    problem=PERMUTE,
    device="cuda",
    dtype="bf16",
    sources=("moe_order_cuda.cu", "moe_gather_cuda.cu"),
    requires=("cupy",),
    supports=lambda axes: int(axes["e"]) <= SORT_THREADS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    t, e, topk, h = routing_sizes(axes)
    order, out = cupy.empty(t * topk, "int32"), cupy.empty((t * topk, h), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        return [
            Step("moe_order", (1,), SORT_THREADS, (held["experts"], order, t * topk, e)),
            Step("moe_gather_bf16", (t * topk,), THREADS, (held["x"], order, out, topk, h)),
        ]

    return cuda_launch(ctx, inputs, convert=as_bf16("x", plain=("experts",)), steps=steps, output=read_bf16(out))
