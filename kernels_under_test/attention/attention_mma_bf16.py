"""The mma.sync flash attention of `attention_mma_bf16.cu`, one kernel for each head size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .problem import PREFILL, sizes

ROWS, THREADS, HEADS, LOG2_E = 64, 128, (64, 128), 1.4426950408889634


@implementation(
    "attention_mma_bf16",
    problem=PREFILL,
    device="cuda",
    dtype="bf16",
    sources=("attention_mma_bf16.cu",),
    requires=("cupy",),
    supports=lambda axes: int(axes["d"]) in HEADS,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    b, hq, hkv, sq, skv, d = sizes(axes)
    out = cupy.empty((b, hq, sq, d), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(sq, ROWS), hq, b)
        numbers = (hq, hkv, sq, skv, int(axes["causal"]), d**-0.5 * LOG2_E)
        arguments = (held["q"], held["k"], held["v"], out, *numbers)
        return [Step(f"attention_mma_bf16_d{d}", grid, THREADS, arguments)]

    return cuda_launch(ctx, inputs, convert=as_bf16("q", "k", "v"), steps=steps, output=read_bf16(out))
