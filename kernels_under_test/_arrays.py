"""Small helpers for CPU implementations: aligned arrays, bfloat16 bits, and calls of C functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from runners.api import Context, Inputs, Launch

Array = np.ndarray[Any, Any]
POINTER, LONG, INT, FLOAT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_float
CACHE_LINE_BYTES = 64


def aligned(shape: int | tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Zeros that start on a cache line, so that two processes lay their data out alike."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + CACHE_LINE_BYTES, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE_BYTES
    made: Array = raw[start : start + count].view(dtype).reshape(shape)
    return made


def aligned_copy(values: Any, dtype: Any = None) -> Array:
    """A copy of `values` that starts on a cache line."""
    copy = aligned(np.shape(values), dtype or values.dtype)
    copy[...] = values
    return copy


def bf16_bits(values: Array) -> Array:
    """The upper halves of float32 values that bfloat16 can hold (inputs arrive rounded, so nothing is lost)."""
    bits: Array = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return bits


def from_bf16_bits(bits: Array) -> Array:
    """The float32 values of bfloat16 bits."""
    values: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


def hold(inputs: Inputs, names: Sequence[str]) -> tuple[dict[str, Array], Callable[[Inputs], None]]:
    """Aligned copies of the named inputs, and the function that loads fresh values into them."""
    held = {name: aligned_copy(np.asarray(inputs[name])) for name in names}

    def load(fresh: Inputs) -> None:
        for name, array in held.items():
            array[...] = fresh[name]

    return held, load


def function(library: Any, name: str, signature: tuple[Any, ...], result: Any = None) -> Callable[..., Any]:
    """The C function `name` with its argument types declared."""
    found = getattr(library, name)
    found.argtypes, found.restype = signature, result
    return found  # type: ignore[no-any-return]


class BoundCall:
    """A call without arguments: its addresses are taken once, and the arrays behind them are kept alive."""

    __slots__ = ("_addresses", "_call", "_kept")

    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._call = call
        self._kept = arguments
        self._addresses = tuple(value.ctypes.data if isinstance(value, np.ndarray) else value for value in arguments)

    def __call__(self) -> Any:
        """Make the call."""
        return self._call(*self._addresses)


def c_launch(
    ctx: Context,
    symbol: str,
    *,
    values: Mapping[str, Array],
    out: Array,
    sizes: Sequence[int],
    floats: Sequence[float] = (),
    workspace: Sequence[int] | None = None,
    load: Callable[[Inputs], None] | None = None,
    output: Callable[[], Array] | None = None,
) -> Launch:
    """Bind the C function `symbol` to its arrays.

    It takes the arrays of `values`, `out`, `sizes` (long), `floats`, a workspace where one is asked for, and the number
    of threads. `workspace` holds the arguments (before the number of threads) of `<symbol>_workspace` (bytes).
    """
    library = ctx.library()
    arguments: list[Any] = [*values.values(), out, *sizes, *floats]
    signature: list[Any] = [POINTER] * (len(values) + 1) + [LONG] * len(sizes) + [FLOAT] * len(floats)
    if workspace is not None:
        size_of = function(library, f"{symbol}_workspace", (LONG,) * len(workspace) + (INT,), LONG)
        arguments.append(aligned(size_of(*workspace, ctx.threads), np.uint8))
        signature.append(POINTER)
    call = function(library, symbol, (*signature, INT))
    return Launch(
        run=BoundCall(call, *arguments, ctx.threads),
        output=output or (lambda: out),
        load=load,
        facts={"symbol": symbol, "backend": "c"},
    )
