"""Rotary embedding in CUTLASS's CuTe DSL, float32, where it is installed."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .problem import ROPE


@implementation("rope_f32_cute", problem=ROPE, device="cuda", dtype="f32", requires=("torch", "cutlass"))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Compile for these shapes and bind torch tensors."""
    import torch
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack

    from ._cute_kernel import rope

    held = {name: torch.from_numpy(inputs[name]).cuda() for name in ("x", "cosine", "sine")}
    out = torch.empty_like(held["x"])
    arguments = [from_dlpack(tensor) for tensor in (*held.values(), out)]
    compiled = cute.compile(rope, *arguments)

    def load(fresh: Inputs) -> None:
        for name, tensor in held.items():
            tensor.copy_(torch.from_numpy(fresh[name]))

    return Launch(
        run=lambda: compiled(*arguments),
        output=lambda: out.cpu().numpy(),
        load=load,
        facts={"symbol": "rotate", "backend": "cute"},
    )
