"""Correct before fast: seeded inputs, the float64 reference, and why a result is wrong.

Inputs are rounded to values that the implementation's dtype can hold before anybody sees them; so the kernel's own
conversion loses nothing, and the reference answers the very question that the kernel was asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from runners.api import Axes, Implementation, Inputs, Tolerance

WHOLE_UP_TO_FLOPS = 1.2e12


def make_inputs(implementation: Implementation, axes: Axes, *, seed: int) -> dict[str, Any]:
    """The problem's inputs for `seed`, their floats rounded to the implementation's dtype (but kept as float32)."""
    made = implementation.problem.inputs(axes, np.random.default_rng(seed))
    rounding = ROUNDINGS.get(implementation.dtype)
    return {name: _rounded(value, rounding) for name, value in made.items()}


@dataclass(frozen=True, slots=True)
class SampledRows:
    """The answer in some rows of an output, seen as rows of its last axis."""

    rows: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]


def reference(implementation: Implementation, inputs: Inputs, axes: Axes) -> np.ndarray[Any, Any] | SampledRows:
    """The problem's answer in float64 from the same inputs; of large work only some rows, if the problem can."""
    problem = implementation.problem
    if problem.sample is not None and problem.flops(axes) > WHOLE_UP_TO_FLOPS:
        rows, values = problem.sample(inputs, axes, np.random.default_rng(_seed_from(inputs)))
        return SampledRows(np.asarray(rows), np.asarray(values))
    wide = {name: _wide(value) for name, value in inputs.items()}
    return np.asarray(implementation.problem.reference(wide, axes))


def check(implementation: Implementation, axes: Axes, output: Any, expected: Any) -> str | None:
    """None when `output` agrees with `expected` within the problem's tolerance, else one sentence that says why not."""
    got = to_host(output)
    if isinstance(expected, SampledRows):
        strange = int((~np.isfinite(got)).sum())
        if strange:
            return f"{strange} of {got.size} values are not finite"
        got, expected = _rows_of(got, expected), expected.values
    want = np.asarray(expected)
    if got.shape != want.shape:
        return f"the output has shape {got.shape}, the reference {want.shape}"
    if got.size == 0:
        return "the output is empty"
    got, want = got.astype(np.float64), want.astype(np.float64)
    strange = ~np.isfinite(got) & np.isfinite(want)
    if strange.any():
        at = _index(strange)
        return f"{int(strange.sum())} of {got.size} values are not finite, the first at {at}: {got[at]}"
    return _judge(got, want, implementation.problem.tolerance(implementation.dtype, axes))


def output_hash(output: Any) -> str:
    """A short hash of shape, type and every bit of an output: equal code and unequal hashes mean a race."""
    host = np.ascontiguousarray(to_host(output))
    head = f"{host.dtype.str}{host.shape}".encode()
    return hashlib.sha256(head + host.tobytes()).hexdigest()[:16]


def to_host(output: Any) -> np.ndarray[Any, Any]:
    """A NumPy array, whether the output was NumPy's or CuPy's."""
    fetch = getattr(output, "get", None)
    return np.asarray(fetch() if callable(fetch) else output)


def _rows_of(got: np.ndarray[Any, Any], expected: SampledRows) -> np.ndarray[Any, Any]:
    """The sampled rows of an output, or the output itself when it has not that many: its shape is then wrong."""
    rows = got.reshape(-1, got.shape[-1]) if got.ndim else got
    return rows[expected.rows] if rows.ndim and len(rows) > int(expected.rows.max()) else got


def _seed_from(inputs: Inputs) -> int:
    """A seed that is the same for the same inputs, and that nobody knows before them."""
    first = np.ascontiguousarray(next(iter(inputs.values()))).reshape(-1)[:4096]
    return int.from_bytes(hashlib.sha256(first.tobytes()).digest()[:8], "little")


def _judge(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], allowed: Tolerance) -> str | None:
    finite = np.isfinite(want)
    error = np.where(finite, np.abs(got - np.where(finite, want, 0.0)), np.where(got == want, 0.0, np.inf))
    limit = allowed.atol + allowed.rtol * np.abs(np.where(finite, want, 0.0))
    off = error > limit
    norm = float(np.linalg.norm(want[finite]))
    relative = float(np.linalg.norm(error[finite])) / norm if norm > 0.0 else float(np.linalg.norm(error[finite]))
    if off.mean() > allowed.outlier_share:
        at = np.unravel_index(int(np.argmax(np.where(off, error, -1.0))), got.shape)
        where = [int(i) for i in at]
        return (
            f"{int(off.sum())} of {got.size} values are off; the worst at {where}: got {got[at]:.6g}, reference "
            f"{want[at]:.6g} (off by {error[at]:.2g}, allowed {limit[at]:.2g}); relative L2 error {relative:.2g}"
        )
    if relative > allowed.rel_l2:
        return f"the relative L2 error is {relative:.3g}, allowed {allowed.rel_l2:.3g}"
    return None


def _index(mask: np.ndarray[Any, Any]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])


def _wide(value: Any) -> Any:
    is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float64) if is_float else value


def _rounded(value: Any, rounding: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None) -> Any:
    is_single = isinstance(value, np.ndarray) and value.dtype == np.float32
    return rounding(value) if rounding is not None and is_single else value


def round_bf16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 to the nearest bfloat16 (ties to even), kept as float32: 8 significand bits, same exponents."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def round_f16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 to the nearest half-precision value, kept as float32."""
    return values.astype(np.float16).astype(np.float32)


def round_e4m3(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 to the nearest OCP FP8 E4M3 value (4 significand bits, smallest step 2^-9, largest 448)."""
    clipped = np.clip(values, -448.0, 448.0).astype(np.float32)
    _, exponent = np.frexp(clipped)
    step = np.ldexp(np.float32(1.0), np.maximum(exponent - 4, -9))
    return np.asarray(np.rint(clipped / step) * step, np.float32)


ROUNDINGS: Mapping[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "bf16": round_bf16,
    "f16": round_f16,
    "fp8": round_e4m3,
}
