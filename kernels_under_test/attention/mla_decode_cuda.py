"""Split MLA decode: `mla_split_cuda.cu`, then `decode_merge_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch, read_bf16
from .decode_problem import LATENT, MLA, mla_scale, mla_sizes

SPLIT, HEADS_PER_BLOCK, THREADS, WARP = 256, 8, 256, 32


@implementation(
    "mla_decode_bf16_cuda",
    problem=MLA,
    device="cuda",
    dtype="bf16",
    sources=("mla_split_cuda.cu", "decode_merge_cuda.cu"),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    b, h, kv = mla_sizes(axes)
    splits = blocks(kv, SPLIT)
    parts, out = cupy.empty((b, h, splits, LATENT + 2), "float32"), cupy.empty((b, h, LATENT), "uint16")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (splits, blocks(h, HEADS_PER_BLOCK), b)
        arguments = (held["q"], held["cache"], held["table"], parts, h, kv, mla_scale())
        return [
            Step("mla_split_bf16", grid, THREADS, arguments),
            Step("decode_merge_bf16", (b * h,), WARP, (parts, out, splits, LATENT)),
        ]

    return cuda_launch(ctx, inputs, convert=as_bf16("q", "cache", plain=("table",)), steps=steps, output=read_bf16(out))
