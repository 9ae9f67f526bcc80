"""Control: NumPy's indexed assignment."""

from __future__ import annotations

from runners.api import Axes, Context, Inputs, Launch, implementation

from .._arrays import aligned, hold
from .problem import APPEND, append_sizes


@implementation("kv_append_f32_numpy", problem=APPEND, device="cpu", dtype="f32", control=True)
def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:  # noqa: ARG001
    """Bind the arrays."""
    values, load_values = hold(inputs, ("fresh", "slot"))
    cache = aligned(append_sizes(axes)[1:])

    def load(fresh: Inputs) -> None:
        load_values(fresh)
        cache.fill(0.0)

    def run() -> None:
        cache[values["slot"]] = values["fresh"]

    return Launch(run=run, output=lambda: cache, load=load, facts={"backend": "numpy"})
