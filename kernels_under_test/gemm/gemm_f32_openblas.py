"""Control: the BLAS that NumPy brings (OpenBLAS in its wheels)."""

from __future__ import annotations

import numpy as np

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, aligned_copy
from .problem import GEMM


@implementation("gemm_f32_openblas", problem=GEMM, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """np.matmul into a ready output."""
    a, w = aligned_copy(inputs["a"]), aligned_copy(inputs["w"])
    c = aligned((a.shape[0], w.shape[0]))

    def load(fresh: Inputs) -> None:
        a[...], w[...] = fresh["a"], fresh["w"]

    return Launch(
        run=lambda: np.matmul(a, w.T, out=c), output=lambda: c, load=load, facts={"symbol": "sgemm", "backend": "numpy"}
    )
