"""The router of `moe_gate_f32.c`."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, c_launch, hold
from .pieces_problem import GATE, gate_sizes


@implementation("moe_gate_f32", problem=GATE, device="cpu", dtype="f32", sources=("moe_gate_f32.c",))
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
    """Bind the C function to its arrays."""
    values, load = hold(inputs, ("logits",))
    t, _, topk = gate_sizes(axes)
    return c_launch(ctx, "moe_gate_f32", values=values, out=aligned((2, t, topk)), sizes=gate_sizes(axes), load=load)
