"""What a time means: rates, intensity, shares of what the device could do, the ratio to the control. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboards import formats
from service.domain import roofline
from service.domain.mixes import Mix


@dataclass(frozen=True, slots=True)
class Meaning:
    """Lines of label and words; `alarm` is a sentence when the figure is faster than the device could be."""

    lines: tuple[tuple[str, str], ...]
    alarm: str | None = None


def meaning(
    *,
    benchmark: str,
    flops: float,
    size_bytes: float,
    value_s: float,
    device: str,
    facts: Mapping[str, Any],
    control_s: float | None = None,
    problem_key: str = "",
    steps: Sequence[Mix] = (),
) -> Meaning:
    """Derive what is shown beside a series' newest time.

    A GPU is judged by its datasheet, and at the clock that it was locked to; a CPU core by its canary's float32 rate
    alone, since what its caches hold has no one memory roof. What is not known gives no line rather than a zero.
    `steps` are the models' steps in which this problem may occur: how often, and what it takes there in all.
    """
    known, dtype, clock_hz, roof = _device(benchmark, device, facts)
    has_memory_roof = known is not None and math.isfinite(known.memory_bytes_per_s)
    judge = known if flops or has_memory_roof else None
    shown = roofline.view(value_s, flops=flops, size_bytes=size_bytes, dtype=dtype, device=judge, clock_hz=clock_hz)
    lines = [
        ("rate", formats.rate(flops, value_s, "FLOP")),
        ("traffic", formats.rate(size_bytes, value_s, "B")),
        ("arithmetic intensity", _intensity(shown.intensity_flop_per_byte if flops else None)),
        ("bound by", shown.bound.value if shown.bound and has_memory_roof else ""),
        (f"share of {roof}", _share(shown.share_of_datasheet)),
        ("share at the locked clock", _share(shown.share_at_clock)),
        ("times as fast as the control", _ratio(value_s, control_s)),
        *(("in a model's step", _part(step, problem_key, value_s)) for step in steps),
    ]
    alarm = None
    if shown.implausible:
        alarm = (
            f"The newest figure is {formats.share(shown.share_of_datasheet)} of {roof}: faster than the device could "
            "be. Suspect the measurement or the count of its work before the kernel."
        )
    return Meaning(lines=tuple((label, words) for label, words in lines if words), alarm=alarm)


def _device(
    benchmark: str, device: str, facts: Mapping[str, Any]
) -> tuple[roofline.Device | None, str, float | None, str]:
    """The device, the dtype to judge by, its locked clock in Hz, and what its roof is called."""
    dtype = roofline.dtype_of(benchmark) or "unknown"
    known = roofline.find_device(device)
    if known is not None:
        return known, dtype, roofline.clock_of(str(facts.get("clock", ""))), "the datasheet's roof"
    try:
        canary_s = float(facts.get("canary_reference_s", ""))
    except ValueError:
        canary_s = 0.0
    core = roofline.canary_device(device, canary_s) if device.startswith("cpu:") and canary_s > 0.0 else None
    return core, "f32", None, "the canary's rate"


def _intensity(flop_per_byte: float | None) -> str:
    return "" if flop_per_byte is None else f"{formats.digits(flop_per_byte, significant=3)}{formats.THIN}FLOP/B"


def _share(ratio: float | None) -> str:
    return "" if ratio is None else formats.share(ratio)


def _ratio(value_s: float, control_s: float | None) -> str:
    return "" if control_s is None else f"{roofline.ratio_to_control(value_s, control_s):.2f}"


def _part(step: Mix, problem_key: str, value_s: float) -> str:
    """How often the problem runs in a model's step, and for how long in all; empty where it does not."""
    count = sum(term.count for term in step.terms if term.problem_key == problem_key)
    times = formats.plural(count, "launch", "launches")
    return f"{step.name}: {times}, {formats.seconds(count * value_s)}" if count else ""
