"""Control: NumPy's batched matmul, which calls its BLAS for each product."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .batched_problem import BATCHED, sizes


@implementation("gemm_batched_f32_openblas", problem=BATCHED, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """np.matmul into a ready output."""
    values, load = hold(inputs, ("a", "w"))
    a, w, c = values["a"], values["w"].swapaxes(1, 2), aligned(sizes(axes)[:3])
    return Launch(
        run=lambda: np.matmul(a, w, out=c), output=lambda: c, load=load, facts={"symbol": "sgemm", "backend": "numpy"}
    )
