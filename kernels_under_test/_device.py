"""Small helpers for CUDA implementations: device arrays and launches of kernels from a RawModule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runners.api import Array, Context, Inputs, Launch

from ._arrays import bf16_bits, from_bf16_bits

Convert = Callable[[Inputs], Mapping[str, Array]]
Grid = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel of a launch; numbers become C ints unless they are floats, arrays become addresses."""

    symbol: str
    grid: Grid
    block: int
    arguments: Sequence[Any]
    shared_bytes: int = 0


def blocks(count: int, size: int) -> int:
    """Blocks of `size` that cover `count`."""
    return -(-count // size)


def as_is(*names: str) -> Convert:
    """Send the named inputs as they are."""
    return lambda inputs: {name: np.ascontiguousarray(inputs[name]) for name in names}


def as_bf16(*names: str, plain: Sequence[str] = ()) -> Convert:
    """Send the named inputs as bfloat16 bits, and those in `plain` as they are."""

    def convert(inputs: Inputs) -> Mapping[str, Array]:
        bits = {name: bf16_bits(inputs[name]) for name in names}
        return bits | {name: np.ascontiguousarray(inputs[name]) for name in plain}

    return convert


def as_f16(*names: str) -> Convert:
    """Send the named inputs in half precision (they arrive rounded to it, so nothing is lost)."""
    return lambda inputs: {name: np.ascontiguousarray(inputs[name], np.float16) for name in names}


def read_f16(out: Any) -> Callable[[], Array]:
    """The host's float32 view of a device array of halves."""
    return lambda: out.get().astype(np.float32)


def read_bf16(out: Any) -> Callable[[], Array]:
    """The host's float32 view of a device array of bfloat16 bits."""
    return lambda: from_bf16_bits(out.get())


def cuda_launch(
    ctx: Context,
    inputs: Inputs,
    *,
    convert: Convert,
    steps: Callable[[Mapping[str, Any]], Sequence[Step]],
    output: Callable[[], Array],
    reset: Callable[[], None] | None = None,
) -> Launch:
    """Copy the converted inputs to the device and bind the kernels that `steps` names, in order, on one stream.

    `reset` puts the output back to its start when fresh inputs are loaded, for kernels that write only parts of it.
    """
    import cupy

    held = {name: cupy.asarray(value) for name, value in convert(inputs).items()}
    module = ctx.module()
    planned = steps(held)
    bound = [(module.get_function(step.symbol), step, tuple(map(_argument, step.arguments))) for step in planned]
    for kernel, step, _ in bound:
        if step.shared_bytes > DEFAULT_SHARED_BYTES:
            kernel.max_dynamic_shared_size_bytes = step.shared_bytes

    def run() -> None:
        for kernel, step, arguments in bound:
            kernel(step.grid, (step.block,), arguments, shared_mem=step.shared_bytes)

    def load(fresh: Inputs) -> None:
        for name, value in convert(fresh).items():
            held[name].set(value)
        if reset is not None:
            reset()

    symbols = "+".join(step.symbol for step in planned)
    facts = {"symbol": symbols, "backend": "cuda", "code": _kind_of_code(cupy)}
    return Launch(run=run, output=output, load=load, facts=facts)


DEFAULT_SHARED_BYTES = 48 * 1024  # what a kernel gets without asking


def _kind_of_code(cupy: Any) -> str:
    """What CuPy makes for this device: a cubin, or PTX for the driver when NVRTC does not know the device."""
    newest = max(cupy.cuda.nvrtc.getSupportedArchs())
    return "cubin" if int(cupy.cuda.Device().compute_capability) <= newest else "ptx"


def _argument(value: Any) -> Any:
    if isinstance(value, float):
        return np.float32(value)
    return np.int32(value) if isinstance(value, int) else value
