"""Control: FlashInfer's RMSNorm, where FlashInfer is installed."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .problem import EPSILON, RMSNORM


@implementation(
    "rmsnorm_bf16_flashinfer",
    problem=RMSNORM,
    device="cuda",
    dtype="bf16",
    control=True,
    requires=("torch", "flashinfer"),
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind torch tensors."""
    import flashinfer
    import torch

    x, weight = (torch.from_numpy(inputs[name]).to("cuda", torch.bfloat16) for name in ("x", "weight"))
    out = torch.empty_like(x)

    def load(fresh: Inputs) -> None:
        x.copy_(torch.from_numpy(fresh["x"]))
        weight.copy_(torch.from_numpy(fresh["weight"]))

    return Launch(
        run=lambda: flashinfer.norm.rmsnorm(x, weight, EPSILON, out=out),
        output=lambda: out.float().cpu().numpy(),
        load=load,
        facts={"symbol": "rmsnorm", "backend": "flashinfer"},
    )
