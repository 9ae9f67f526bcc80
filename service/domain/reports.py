"""What a report must satisfy before anything of it is stored, beyond its types.

A runner executes other people's code, so its report is checked like any stranger's: a figure that is not a positive,
finite, believable number never becomes a point. One NaN in a history would poison every median after it, and a zero
would be an infinitely fast kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from service.contract import (
    CONTRACT_VERSION,
    MeasurementReport,
    MeasurementStatus,
    RunReason,
    RunReport,
    SampleBlock,
    StaticReport,
)

TIME_METRIC = "time"  # and `time_cold`, `time_plain`: times taken in another way
LONGEST_LAUNCH_S = 3600.0
LONGEST_RUN_S = 7 * 86400.0
MAX_MEASUREMENTS = 50_000
MAX_TEXT = 512
MAX_LOG = 65_536
MAX_INT = 2**31 - 1
CLOCKS = ("wall", "cpu")
DIRECTIONS = ("lower", "higher")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: the field's path in the report, and a sentence."""

    field: str
    message: str


class ReportRefusedError(ValueError):
    """The report cannot be stored; `faults` says why, field by field."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{fault.field}: {fault.message}" for fault in faults))


def check_report(report: RunReport, *, shas: frozenset[str], reason: RunReason = RunReason.PUSH) -> None:
    """Raise ReportRefusedError, naming up to twenty faults, unless the report may be stored.

    `shas` are the commits that the run was ordered for, `reason` is what for.
    """
    faults = []
    for fault in _faults(report, shas, reason):
        faults.append(fault)
        if len(faults) == 20:
            break
    if faults:
        raise ReportRefusedError(tuple(faults))


def clean_text(text: str | None, *, limit: int = MAX_LOG) -> str | None:
    """Text as a kernel printed it, made fit for storing: no NUL (Postgres has none), and only its last part."""
    return None if text is None else text.replace("\x00", "\N{REPLACEMENT CHARACTER}")[-limit:]


def _faults(report: RunReport, shas: frozenset[str], reason: RunReason) -> Iterator[Fault]:
    if report.contract_version > CONTRACT_VERSION:
        yield Fault("contract_version", f"this service speaks {CONTRACT_VERSION}; update it before its runners")
    yield from _number("started_at", report.started_at, low=0.0, high=1e11)
    yield from _number("finished_at", report.finished_at, low=report.started_at, high=1e11)
    yield from _number("device_s", report.device_s, low=0.0, high=LONGEST_RUN_S)
    yield from _integer("harness_epoch", report.harness_epoch)
    for name in ("canary_wall_s", "canary_cpu_s", "memory_canary_wall_s", "memory_canary_cpu_s"):
        yield from _number(name, getattr(report, name), low=0.0, high=LONGEST_LAUNCH_S)
    yield from _texts("flags", report.flags)
    yield from _environment(report)
    yield from _device_health(report)
    for index, entry in enumerate(report.commit_failures):
        if entry.sha not in shas:
            yield Fault(f"commit_failures[{index}].sha", "this commit is not part of the run")
    if len(report.measurements) > MAX_MEASUREMENTS:
        yield Fault("measurements", f"more than {MAX_MEASUREMENTS} in one run")
        return
    says_why = report.commit_failures or report.failure is not None
    canaries_only = reason is RunReason.CANARY and report.canary_wall_s is not None
    if not report.measurements and not says_why and not canaries_only:
        yield Fault("measurements", "an empty report must say why: give `failure` or `commit_failures`")
    yield from _measurements(report, shas)
    yield from _static(report.static, shas)


def _static(reports: Sequence[StaticReport], shas: frozenset[str]) -> Iterator[Fault]:
    if len(reports) > MAX_MEASUREMENTS:
        yield Fault("static", f"more than {MAX_MEASUREMENTS} in one run")
        return
    seen: set[tuple[object, ...]] = set()
    for index, item in enumerate(reports):
        where = f"static[{index}]"
        if item.sha not in shas:
            yield Fault(f"{where}.sha", "this commit is not part of the run")
        identity = (item.sha, item.benchmark, item.version, item.target, item.toolchain)
        if identity in seen:
            yield Fault(where, f"a second report on {item.benchmark} for {item.target} at {item.sha[:12]}")
        seen.add(identity)
        for name in ("benchmark", "family", "problem", "device", "target", "toolchain"):
            yield from _text(f"{where}.{name}", getattr(item, name))
        for name in ("code_hash", "recipe_hash"):
            if getattr(item, name) is not None:
                yield from _text(f"{where}.{name}", getattr(item, name))
        yield from _integer(f"{where}.version", item.version)
        yield from _facts(f"{where}.facts", item.facts)
        if item.code_hash is None and item.error is None:
            yield Fault(f"{where}.error", "without machine code it must say why there is none")


def _environment(report: RunReport) -> Iterator[Fault]:
    if report.environment is None:
        if report.measurements:
            yield Fault("environment", "measurements need the environment they were made in")
        return
    for name in ("device", "comparable_key", "fingerprint"):
        yield from _text(f"environment.{name}", getattr(report.environment, name))
    yield from _facts("environment.facts", report.environment.facts)


def _device_health(report: RunReport) -> Iterator[Fault]:
    if report.device_health is None:
        return
    for name in ("ecc_uncorrected", "xid_errors"):
        yield from _integer(f"device_health.{name}", getattr(report.device_health, name))
    slowest_s = report.device_health.slowest_nvml_call_s
    yield from _number("device_health.slowest_nvml_call_s", slowest_s, low=0.0, high=LONGEST_RUN_S)


def _measurements(report: RunReport, shas: frozenset[str]) -> Iterator[Fault]:
    seen: set[tuple[object, ...]] = set()
    for index, item in enumerate(report.measurements):
        where = f"measurements[{index}]"
        if item.sha not in shas:
            yield Fault(f"{where}.sha", "this commit is not part of the run")
        identity = (item.sha, item.benchmark, item.version, item.workload, item.metric, item.direction, item.unit)
        if identity in seen:
            yield Fault(where, f"a second measurement of {item.workload} ({item.metric}) at {item.sha[:12]}")
        seen.add(identity)
        yield from _identity(where, item)
        yield from _figure(where, item, shas)
        for number, block in enumerate(item.blocks):
            yield from _block(f"{where}.blocks[{number}]", block)


def _identity(where: str, item: MeasurementReport) -> Iterator[Fault]:
    for name in ("benchmark", "family", "problem", "device", "workload", "metric", "unit"):
        yield from _text(f"{where}.{name}", getattr(item, name))
    for name in ("code_hash", "output_hash"):
        if getattr(item, name) is not None:
            yield from _text(f"{where}.{name}", getattr(item, name))
    yield from _integer(f"{where}.version", item.version)
    yield from _texts(f"{where}.flags", item.flags)
    yield from _facts(f"{where}.axes", item.axes)
    yield from _facts(f"{where}.static", item.static)
    for name in ("flops", "bytes"):
        yield from _number(f"{where}.{name}", getattr(item, name), low=0.0, high=1e24)
    if item.direction not in DIRECTIONS:
        yield Fault(f"{where}.direction", f"one of {', '.join(DIRECTIONS)}")
    if item.clock not in CLOCKS:
        yield Fault(f"{where}.clock", f"one of {', '.join(CLOCKS)}")
    if is_time(item.metric) and item.unit != "s":
        yield Fault(f"{where}.unit", "times are stored in seconds (s)")


def is_time(metric: str) -> bool:
    """Whether a metric is a time, whatever way it was taken in."""
    return metric.partition("_")[0] == TIME_METRIC


def _figure(where: str, item: MeasurementReport, shas: frozenset[str]) -> Iterator[Fault]:
    if (item.status is MeasurementStatus.IDENTICAL) != (item.identical_to is not None):
        yield Fault(f"{where}.identical_to", "a measurement that is identical names the commit, and no other does")
    elif item.identical_to is not None and item.identical_to not in shas:
        yield Fault(f"{where}.identical_to", "this commit is not part of the run")
    if item.status is not MeasurementStatus.OK:
        for name in ("value_s", "half_width_s"):
            if getattr(item, name) is not None:
                yield Fault(f"{where}.{name}", f"a measurement that is {item.status} has no figure")
        return
    if item.value_s is None:
        yield Fault(f"{where}.value_s", "a measurement that is ok needs its figure")
        return
    if is_time(item.metric):
        yield from _number(f"{where}.value_s", item.value_s, above=0.0, high=LONGEST_LAUNCH_S)
        yield from _number(f"{where}.half_width_s", item.half_width_s, low=0.0, high=LONGEST_LAUNCH_S)
        if not item.blocks:
            yield Fault(f"{where}.blocks", "a time comes with the samples it was made from")
    else:
        yield from _number(f"{where}.value_s", item.value_s, low=0.0, high=1e24)
        yield from _number(f"{where}.half_width_s", item.half_width_s, low=0.0, high=1e24)


def _block(where: str, block: SampleBlock) -> Iterator[Fault]:
    yield from _integer(f"{where}.process", block.process)
    yield from _integer(f"{where}.order", block.order)
    yield from _number(f"{where}.canary_wall_s", block.canary_wall_s, low=0.0, high=LONGEST_LAUNCH_S)
    yield from _number(f"{where}.canary_cpu_s", block.canary_cpu_s, low=0.0, high=LONGEST_LAUNCH_S)
    yield from _texts(f"{where}.flags", block.flags)
    if len(block.wall_s) != len(block.cpu_s):
        yield Fault(f"{where}.cpu_s", f"{len(block.cpu_s)} samples beside {len(block.wall_s)} of the wall clock")
    for index, value in enumerate(block.wall_s):
        if not 0.0 < value <= LONGEST_LAUNCH_S:  # false for NaN as well
            yield Fault(f"{where}.wall_s[{index}]", f"{value} is not a time between 0 and {LONGEST_LAUNCH_S:.0f} s")
    for index, value in enumerate(block.cpu_s):
        if not 0.0 <= value <= LONGEST_LAUNCH_S * 1024:
            yield Fault(f"{where}.cpu_s[{index}]", f"{value} is not a processor time")


def _number(
    where: str, value: float | None, *, high: float, low: float | None = None, above: float | None = None
) -> Iterator[Fault]:
    if value is None:
        return
    if not math.isfinite(value):
        yield Fault(where, f"{value} is not a finite number")
    elif above is not None and value <= above:
        yield Fault(where, f"{value} must be greater than {above:g}")
    elif low is not None and value < low:
        yield Fault(where, f"{value} must be at least {low:g}")
    elif value > high:
        yield Fault(where, f"{value} is more than anybody can believe ({high:g})")


def _integer(where: str, value: int) -> Iterator[Fault]:
    if not 0 <= value <= MAX_INT:
        yield Fault(where, f"{value} must lie between 0 and {MAX_INT}")


def _text(where: str, value: str) -> Iterator[Fault]:
    if not value or len(value) > MAX_TEXT:
        yield Fault(where, f"must have 1 to {MAX_TEXT} characters")
    elif any(ord(character) < 32 for character in value):
        yield Fault(where, "must not contain control characters")


def _texts(where: str, values: tuple[str, ...]) -> Iterator[Fault]:
    for index, value in enumerate(values):
        yield from _text(f"{where}[{index}]", value)


def _facts(where: str, facts: Mapping[str, str | float | int]) -> Iterator[Fault]:
    for name, value in facts.items():
        yield from _text(f"{where}: a name", name)
        if isinstance(value, str):
            if "\x00" in value or len(value) > MAX_LOG:
                yield Fault(f"{where}.{name}", f"must be text of at most {MAX_LOG} characters without NUL")
        elif isinstance(value, float) and not math.isfinite(value):
            yield Fault(f"{where}.{name}", f"{value} is not a finite number")
        elif isinstance(value, int) and abs(value) > 2**63:
            yield Fault(f"{where}.{name}", "is too large")
