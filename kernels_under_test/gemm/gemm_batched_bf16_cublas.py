"""Control: cuBLAS's strided batched product through CuPy, bfloat16 (its NumPy type comes from ml_dtypes)."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .batched_problem import BATCHED, sizes


@implementation(
    "gemm_batched_bf16_cublas",
    problem=BATCHED,
    device="cuda",
    dtype="bf16",
    control=True,
    requires=("cupy", "ml_dtypes"),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """cupy.matmul of three-dimensional arrays into a ready output."""
    import cupy
    import ml_dtypes

    dtype = ml_dtypes.bfloat16
    a, w = (cupy.asarray(inputs[name].astype(dtype)) for name in ("a", "w"))
    b, m, n, _ = sizes(axes)
    c = cupy.empty((b, m, n), dtype)

    def load(fresh: Inputs) -> None:
        a.set(fresh["a"].astype(dtype))
        w.set(fresh["w"].astype(dtype))

    return Launch(
        run=lambda: cupy.matmul(a, w.swapaxes(1, 2), out=c),
        output=lambda: c.get().astype("float32"),
        load=load,
        facts={"symbol": "cublasGemmStridedBatchedEx", "backend": "cublas"},
    )
