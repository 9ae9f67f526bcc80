"""The FP8 quantisation of `quantise_fp8_cuda.cu`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._device import Step, as_bf16, blocks, cuda_launch
from .problem import GROUP, QUANTISE, decode, sizes

GROUPS_PER_BLOCK, THREADS = 4, 128


@implementation(
    "quantise_fp8_bf16_cuda",
    problem=QUANTISE,
    device="cuda",
    dtype="bf16",
    sources=("quantise_fp8_cuda.cu",),
    requires=("cupy",),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Plan the grid and bind the device arrays."""
    import cupy

    t, h = sizes(axes)
    groups = t * h // GROUP
    codes, scales = cupy.empty((t, h), "uint8"), cupy.empty((t, h // GROUP), "float32")

    def steps(held: Mapping[str, Any]) -> Sequence[Step]:
        grid = (blocks(groups, GROUPS_PER_BLOCK),)
        return [Step("quantise_fp8_bf16", grid, THREADS, (held["x"], codes, scales, groups))]

    return cuda_launch(
        ctx,
        inputs,
        convert=as_bf16("x"),
        steps=steps,
        output=lambda: np.concatenate([decode(codes.get()), scales.get()], axis=1),
    )
