"""Control: gather the pages, then two products a sequence, in NumPy."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .decode_problem import LATENT, MLA, ROTARY, mla_scale, mla_sizes, weighted


@implementation("mla_decode_f32_numpy", problem=MLA, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("q", "cache", "table"))
    b, h, kv = mla_sizes(axes)
    out = aligned((b, h, LATENT))

    def run() -> None:
        rows = values["cache"][values["table"]].reshape(b, -1, LATENT + ROTARY)[:, :kv]
        out[...] = weighted(values["q"] @ rows.swapaxes(1, 2) * np.float32(mla_scale()), rows[..., :LATENT])

    return Launch(run=run, output=lambda: out, load=load, facts={"backend": "numpy"})
