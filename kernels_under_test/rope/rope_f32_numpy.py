"""Control: the rotary embedding in NumPy, with ready buffers."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import ROPE, sizes


@implementation("rope_f32_numpy", problem=ROPE, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("x", "cosine", "sine"))
    out = aligned(sizes(axes))
    half = sizes(axes)[2] // 2
    a, b = values["x"][..., :half], values["x"][..., half:]
    cosine, sine = values["cosine"][:, None], values["sine"][:, None]
    spare = np.empty_like(a)

    def run() -> None:
        np.multiply(a, cosine, out=out[..., :half])
        np.subtract(out[..., :half], np.multiply(b, sine, out=spare), out=out[..., :half])
        np.multiply(b, cosine, out=out[..., half:])
        np.add(out[..., half:], np.multiply(a, sine, out=spare), out=out[..., half:])

    return Launch(run=run, output=lambda: out, load=load, facts={"backend": "numpy"})
