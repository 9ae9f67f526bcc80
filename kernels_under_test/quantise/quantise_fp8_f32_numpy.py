"""Control: the same recipe in NumPy, up to the rounded values (it writes no bytes)."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Context, Inputs, Launch, implementation

from .._arrays import hold
from .problem import GROUP, LARGEST, QUANTISE, round_to_e4m3, sizes


@implementation("quantise_fp8_f32_numpy", problem=QUANTISE, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load = hold(inputs, ("x",))
    t, h = sizes(axes)
    made: dict[str, Array] = {}

    def run() -> None:
        groups = values["x"].reshape(t, h // GROUP, GROUP)
        scales = np.maximum(np.abs(groups).max(-1, keepdims=True), np.float32(1e-10)) / np.float32(LARGEST)
        made["codes"], made["scales"] = round_to_e4m3(groups / scales), scales[..., 0]

    def output() -> Array:
        return np.concatenate([made["codes"].reshape(t, h), made["scales"]], axis=1)

    return Launch(run=run, output=output, load=load, facts={"backend": "numpy"})
