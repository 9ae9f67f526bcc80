"""Control: PyTorch's scaled_dot_product_attention, where PyTorch is installed."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .problem import PREFILL


@implementation(
    "attention_bf16_torch",
    problem=PREFILL,
    device="cuda",
    dtype="bf16",
    control=True,
    requires=("torch",),
    supports=lambda axes: not axes["causal"] or axes["sq"] == axes["skv"],  # its causal mask starts at the first key
)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind torch tensors; the backend is the one that PyTorch chooses."""
    import torch

    held = {name: torch.from_numpy(inputs[name]).to("cuda", torch.bfloat16) for name in ("q", "k", "v")}
    made: dict[str, torch.Tensor] = {}

    def run() -> None:
        made["out"] = torch.nn.functional.scaled_dot_product_attention(
            *held.values(), is_causal=bool(axes["causal"]), enable_gqa=axes["hq"] != axes["hkv"]
        )

    def load(fresh: Inputs) -> None:
        for name, tensor in held.items():
            tensor.copy_(torch.from_numpy(fresh[name]))

    return Launch(
        run=run,
        output=lambda: made["out"].float().cpu().numpy(),
        load=load,
        facts={"symbol": "scaled_dot_product_attention", "backend": "torch"},
    )
