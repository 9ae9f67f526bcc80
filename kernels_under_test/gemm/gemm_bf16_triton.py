"""A tiled product in Triton, bfloat16, where Triton is installed."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .problem import GEMM, sizes

TILE_M, TILE_N, TILE_K = 128, 128, 64
MOST_VALUES = 2**31 - 1  # offsets are 32-bit


@implementation(
    "gemm_bf16_triton",
    problem=GEMM,
    device="cuda",
    dtype="bf16",
    requires=("torch", "triton"),
    supports=lambda axes: max(sizes(axes)[:2]) * max(sizes(axes)[1:]) <= MOST_VALUES,
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind torch tensors; the first launch compiles."""
    import torch

    from ._triton_kernel import gemm

    m, n, k = sizes(axes)
    a, w = (torch.from_numpy(inputs[name]).to("cuda", torch.bfloat16) for name in ("a", "w"))
    c = torch.empty((m, n), dtype=torch.bfloat16, device="cuda")
    bound = gemm[(-(-m // TILE_M), -(-n // TILE_N))]

    def run() -> None:
        bound(a, w, c, m, n, k, tile_m=TILE_M, tile_n=TILE_N, tile_k=TILE_K, num_warps=8, num_stages=3)

    def load(fresh: Inputs) -> None:
        a.copy_(torch.from_numpy(fresh["a"]))
        w.copy_(torch.from_numpy(fresh["w"]))

    return Launch(
        run=run, output=lambda: c.float().cpu().numpy(), load=load, facts={"symbol": "gemm", "backend": "triton"}
    )
