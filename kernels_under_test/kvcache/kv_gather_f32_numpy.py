"""Control: NumPy's indexed read."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import GATHER, gather_sizes


@implementation("kv_gather_f32_numpy", problem=GATHER, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("cache", "table"))
    b, kv, page, width = gather_sizes(axes)
    pages = values["table"].shape[1]
    out = aligned((b, pages, page, width))

    def run() -> None:
        np.take(values["cache"], values["table"], axis=0, out=out, mode="clip")

    return Launch(run=run, output=lambda: out.reshape(b, -1, width)[:, :kv], load=load, facts={"backend": "numpy"})
