"""Control: cuBLAS through CuPy, half precision with float32 sums."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .problem import GEMM, sizes


@implementation("gemm_f16_cublas", problem=GEMM, device="cuda", dtype="f16", control=True, requires=("cupy",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """cupy.matmul into a ready output."""
    import cupy

    dtype = cupy.float16
    a, w = (cupy.asarray(inputs[name].astype(dtype)) for name in ("a", "w"))
    m, n, _ = sizes(axes)
    c = cupy.empty((m, n), dtype)

    def load(fresh: Inputs) -> None:
        a.set(fresh["a"].astype(dtype))
        w.set(fresh["w"].astype(dtype))

    return Launch(
        run=lambda: cupy.matmul(a, w.T, out=c),
        output=lambda: c.get().astype("float32"),
        load=load,
        facts={"symbol": "cublasGemmEx", "backend": "cublas"},
    )
