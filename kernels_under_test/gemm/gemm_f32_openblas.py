"""Control: the BLAS that NumPy brings (OpenBLAS in its wheels)."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import GEMM, sizes


@implementation("gemm_f32_openblas", problem=GEMM, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """np.matmul into a ready output."""
    values, load = hold(inputs, ("a", "w"))
    m, n, _ = sizes(axes)
    a, w, c = values["a"], values["w"].T, aligned((m, n))
    return Launch(
        run=lambda: np.matmul(a, w, out=c), output=lambda: c, load=load, facts={"symbol": "sgemm", "backend": "numpy"}
    )
