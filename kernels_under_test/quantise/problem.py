"""Quantise activations to FP8 E4M3 with one scale per token and group of 128 channels (the recipe of DeepSeek-V3)."""

from __future__ import annotations

import numpy as np

from runners.api import Array, Axes, Inputs, Problem, Tolerance, Workload

from .._shapes import cuda_shapes

BYTES = {"f32": 4, "bf16": 2, "f16": 2}
GROUP = 128
LARGEST = 448.0  # the largest E4M3 value


def sizes(axes: Axes) -> tuple[int, int]:
    """Tokens and channels."""
    return int(axes["t"]), int(axes["h"])


def inputs(axes: Axes, rng: np.random.Generator) -> Inputs:
    """Activations whose groups differ in size by a factor of some hundreds."""
    t, h = sizes(axes)
    spread = np.exp(rng.uniform(-3.0, 3.0, (t, h // GROUP, 1)))
    return {"x": (rng.standard_normal((t, h // GROUP, GROUP)) * spread).reshape(t, h).astype(np.float32)}


def round_to_e4m3(values: Array) -> Array:
    """The nearest E4M3 value: 4 significant bits, smallest step 2^-9, ties to even."""
    exponent = np.maximum(np.frexp(values)[1], -5)
    step = np.ldexp(1.0, exponent - 4)
    return np.rint(values / step) * step


def decode(codes: Array) -> Array:
    """The values of E4M3 bytes: sign, 4 bits of exponent (bias 7), 3 of fraction."""
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent, fraction = (codes >> 3) & 0xF, codes & 0x7
    size = np.where(exponent > 0, np.ldexp(8.0 + fraction, exponent.astype(int) - 10), np.ldexp(1.0 * fraction, -9))
    return sign * size


def reference(values: Inputs, axes: Axes) -> Array:
    """[t, h + h/128]: the quantised values as numbers, then the scales (group maximum / 448)."""
    t, h = sizes(axes)
    groups = values["x"].reshape(t, h // GROUP, GROUP)
    scales = np.maximum(np.abs(groups).max(-1, keepdims=True), 1e-10) / LARGEST
    codes = round_to_e4m3(groups / scales)
    return np.concatenate([codes.reshape(t, h), scales[..., 0]], axis=1)


def compulsory_bytes(axes: Axes, dtype: str) -> float:
    """Values read, one byte each written, and a float for each group."""
    t, h = sizes(axes)
    return float(t * h * (BYTES[dtype] + 1) + t * h // GROUP * 4)


def tolerance(dtype: str, axes: Axes) -> Tolerance:  # noqa: ARG001
    """Exact but for values within rounding of a tie, which may fall on the neighbouring code."""
    return Tolerance(rtol=1e-6, atol=1e-7, rel_l2=3e-3, outlier_share=1e-3)


QUANTISE = Problem(
    name="quantise_fp8_group128",
    family="quantise",
    axes=("t", "h"),
    inputs=inputs,
    reference=reference,
    flops=lambda axes: 4.0 * float(np.prod(sizes(axes))),
    bytes=compulsory_bytes,
    tolerance=tolerance,
    workloads=(
        Workload(axes={"t": 768, "h": 4096}, label="prefill"),
        Workload(axes={"t": 1, "h": 7168}, tier="nightly", label="decode"),
        Workload(axes={"t": 13, "h": 384}, tier="nightly", label="ragged"),
        *cuda_shapes("quantise_fp8_group128"),
    ),
)
