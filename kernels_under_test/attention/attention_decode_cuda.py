"""Split decode: `decode_split_cuda.cu`, then `decode_merge_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .decode_problem import DECODE, gqa_sizes

SPLIT, WARP, MOST_HEAD, MOST_GROUP = 256, 32, 256, 32


@implementation(
    "attention_decode_bf16_cuda",
    problem=DECODE,
    device="cuda",
    dtype="bf16",
    sources=("decode_split_cuda.cu", "decode_merge_cuda.cu"),
    requires=("cupy",),
    supports=lambda axes: int(axes["d"]) <= MOST_HEAD and int(axes["hq"]) // int(axes["hkv"]) <= MOST_GROUP,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    b, hq, hkv, kv, d, page = gqa_sizes(axes)
    splits = blocks(kv, SPLIT)
    parts, out = cupy.empty((b, hq, splits, d + 2), "float32"), cupy.empty((b, hq, d), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        values = (held["q"], held["k"], held["v"], held["table"], parts)
        numbers = (hq, hkv, kv, d, page, d**-0.5)
        return [
            Step("decode_split_bf16", (splits, hkv, b), hq // hkv * WARP, (*values, *numbers)),
            Step("decode_merge_bf16", (b * hq,), WARP, (parts, out, splits, d)),
        ]

    return cuda_launch(
        ctx, inputs, convert=as_bf16("q", "k", "v", plain=("table",)), steps=steps, output=read_bf16(out)
    )
