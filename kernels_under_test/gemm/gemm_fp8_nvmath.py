"""Control: cuBLASLt's FP8 E4M3 product through nvmath-python, where it is installed; the result is bfloat16."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .problem import GEMM, sizes

MULTIPLE = 16  # cuBLASLt takes FP8 operands whose sizes are multiples of 16 only


@implementation(
    "gemm_fp8_nvmath",
    problem=GEMM,
    device="cuda",
    dtype="fp8",
    control=True,
    requires=("torch", "nvmath"),
    supports=lambda axes: all(size % MULTIPLE == 0 for size in sizes(axes)),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Plan once with unit scales (the inputs are E4M3 values already), then only execute."""
    import nvmath
    import torch

    a, w = (torch.from_numpy(inputs[name]).cuda().to(torch.float8_e4m3fn) for name in ("a", "w"))
    product = nvmath.linalg.advanced.Matmul(
        a,
        w.T,
        quantization_scales={"a": 1.0, "b": 1.0},
        options={"result_type": nvmath.CudaDataType.CUDA_R_16BF},
    )
    product.plan()
    made: dict[str, torch.Tensor] = {}

    def run() -> None:
        made["c"] = product.execute()

    def load(fresh: Inputs) -> None:
        a.copy_(torch.from_numpy(fresh["a"]))
        w.copy_(torch.from_numpy(fresh["w"]))

    return Launch(
        run=run,
        output=lambda: made["c"].float().cpu().numpy(),
        load=load,
        facts={"symbol": "cublasLtMatmul", "backend": "nvmath"},
    )
