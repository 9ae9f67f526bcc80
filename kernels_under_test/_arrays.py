"""Small helpers for CPU implementations: aligned arrays, addresses and C signatures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

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


def aligned_copy(values: Any, dtype: Any = np.float32) -> Array:
    """A copy of `values` that starts on a cache line."""
    copy = aligned(np.shape(values), dtype)
    copy[...] = values
    return copy


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
