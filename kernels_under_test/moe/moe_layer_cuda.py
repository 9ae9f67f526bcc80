"""The whole layer: gate, plan, up-projections with their activation, down-projection, weighted sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .problem import LAYER, sizes

MOST_EXPERTS, TOKENS_PER_BLOCK, TILE, THREADS = 512, 4, 64, 128


@implementation(
    "moe_layer_bf16_cuda",
    problem=LAYER,
    device="cuda",
    dtype="bf16",
    sources=("moe_gate_cuda.cu", "moe_plan_cuda.cu", "moe_layer_cuda.cu"),
    requires=("cupy",),
    supports=lambda axes: int(axes["e"]) <= MOST_EXPERTS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grids for the most rows that one expert can get, and bind the device arrays."""
    import cupy

    t, e, topk, h, i = sizes(axes)
    rows = t * topk
    chosen, order, start = cupy.empty((2, t, topk), "float32"), cupy.empty(rows, "int32"), cupy.empty(e + 1, "int32")
    activated, parts = cupy.empty((rows, i), "uint16"), cupy.empty((rows, h), "uint16")
    out = cupy.empty((t, h), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        up, down = (held["x"], order, start, held["up_gate"], activated), (activated, order, start, held["down"], parts)
        return [
            Step("moe_gate_f32", (blocks(t, TOKENS_PER_BLOCK),), THREADS, (held["logits"], chosen, t, e, topk)),
            Step("moe_plan", (1,), MOST_EXPERTS, (chosen[0], order, start, rows, e)),
            Step("moe_layer_up_bf16", (blocks(i, TILE), blocks(t, TILE), e), THREADS, (*up, topk, h, i)),
            Step("moe_layer_down_bf16", (blocks(h, TILE), blocks(t, TILE), e), THREADS, (*down, i, h)),
            Step("moe_layer_sum_bf16", (t,), THREADS, (parts, chosen[1], out, topk, h)),
        ]

    convert = as_bf16("x", "up_gate", "down", plain=("logits",))
    return cuda_launch(ctx, inputs, convert=convert, steps=steps, output=read_bf16(out))
