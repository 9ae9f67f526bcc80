"""The FP8 quantisation of `quantise_fp8_f32.c`."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .problem import GROUP, QUANTISE, decode, sizes


@implementation("quantise_fp8_f32", problem=QUANTISE, device="cpu", dtype="f32", sources=("quantise_fp8_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bytes and scales share one buffer; they are decoded only when they are looked at."""
    values, load = hold(inputs, ("x",))
    t, h = sizes(axes)
    out = aligned(t * h + t * h // GROUP * 4, np.uint8)

    def output() -> Array:
        scales = out[t * h :].view(np.float32).reshape(t, h // GROUP)
        return np.concatenate([decode(out[: t * h].reshape(t, h)), scales], axis=1)

    return c_launch(ctx, "quantise_fp8_f32", values=values, out=out, sizes=(t, h), load=load, output=output)
