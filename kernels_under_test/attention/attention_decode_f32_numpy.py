"""Control: gather the pages, then two small products a group, in NumPy."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .decode_problem import DECODE, gqa_sizes, weighted


@implementation("attention_decode_f32_numpy", problem=DECODE, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("q", "k", "v", "table"))
    b, hq, hkv, kv, d, _ = gqa_sizes(axes)
    grouped = (b, hkv, hq // hkv, d)
    q, out = values["q"].reshape(grouped), aligned(grouped)

    def gathered(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return values[name][values["table"]].reshape(b, -1, hkv, d)[:, :kv].transpose(0, 2, 1, 3)

    def run() -> None:
        out[...] = weighted(q @ gathered("k").swapaxes(-1, -2) * np.float32(d**-0.5), gathered("v"))

    return Launch(run=run, output=lambda: out.reshape(b, hq, d), load=load, facts={"backend": "numpy"})
