"""The router of `moe_gate_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_is, blocks, cuda_launch
from .pieces_problem import GATE, gate_sizes

MOST_EXPERTS, TOKENS_PER_BLOCK, THREADS = 512, 4, 128


@implementation(
    "moe_gate_f32_cuda",
    problem=GATE,
    device="cuda",
    dtype="f32",
    sources=("moe_gate_cuda.cu",),
    requires=("cupy",),
    supports=lambda axes: int(axes["e"]) <= MOST_EXPERTS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    t, e, topk = gate_sizes(axes)
    out = cupy.empty((2, t, topk), "float32")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(t, TOKENS_PER_BLOCK),)
        return [Step("moe_gate_f32", grid, THREADS, (held["logits"], out, t, e, topk))]

    return cuda_launch(ctx, inputs, convert=as_is("logits"), steps=steps, output=out.get)
