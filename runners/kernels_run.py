"""Check and time the workloads of a suite in this process: the author's quick look, not a measurement.

A measurement (canaries, fresh processes, an interval) is made by the service's runner or by `kernelwatch compare`; here
one process prepares each workload, proves it right, and times a few blocks, so that a mistake shows in seconds.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from runners.api import Implementation, Launch
from runners.errors import BuildError
from runners.measure.context import context_for, prepare_launch
from runners.measure.correctness import check, make_inputs, reference
from runners.measure.discover import BoundWorkload, Suite, missing_requirement

T = TypeVar("T")

BLOCKS = 5
SMALLEST_BLOCK_S = 0.002


class RowStatus(StrEnum):
    """What became of a workload."""

    OK = "ok"
    WRONG_RESULT = "wrong_result"
    CRASHED = "crashed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; the times are None unless the workload was timed."""

    key: str
    family: str
    status: RowStatus
    reason: str = ""
    control: bool = False
    median_s: float | None = None
    spread: float | None = None  # (third - first quartile) / median
    flops: float = 0.0
    bytes: float = 0.0
    backend: str = ""


def select(suite: Suite, *, tier: str, device: str, pattern: str) -> list[BoundWorkload]:
    """The workloads of a tier whose implementation or key matches a glob; rivals on the same axes stand together."""
    found = [
        bound
        for bound in suite.workloads(tier, device)
        if fnmatchcase(bound.implementation.name, pattern) or fnmatchcase(bound.key, glob_escape(pattern))
    ]
    order = {place(bound): at for at, bound in reversed(list(enumerate(found)))}
    return sorted(found, key=lambda bound: (order[place(bound)], bound.implementation.control))


def glob_escape(pattern: str) -> str:
    """The pattern with `[` taken literally, because keys are written with brackets."""
    return pattern.replace("[", "[[]")


def place(bound: BoundWorkload) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """What a workload computes: rivals share it."""
    return bound.implementation.problem.name, tuple(sorted(bound.axes.items()))


def why_skipped(implementation: Implementation) -> str | None:
    """Why this implementation cannot run here, or None."""
    missing = missing_requirement(implementation)
    if missing is not None or implementation.device != "cuda":
        return missing
    try:
        import cupy
    except ImportError:
        return "cupy is not installed"
    return None if cupy.cuda.is_available() else "no CUDA device"


def check_all(suite: Suite, chosen: Sequence[BoundWorkload], *, build_dir: Path, seeds: Sequence[int]) -> Iterator[Row]:
    """Prepare each workload, and compare its result with the reference for every seed."""
    for bound in chosen:
        yield _guarded(bound, partial(_check_row, suite, bound, build_dir=build_dir, seeds=seeds))


def time_all(suite: Suite, chosen: Sequence[BoundWorkload], *, build_dir: Path, budget_s: float) -> Iterator[Row]:
    """Check each workload once, then time it for about `budget_s`, taking turns with its rivals on the same axes."""
    for _, group in itertools.groupby(chosen, place):
        rivals = list(group)
        ready = [_guarded(bound, partial(_prepare, suite, bound, build_dir=build_dir)) for bound in rivals]
        blocks = [(entry.block, _launches(entry.block, budget_s)) for entry in ready if isinstance(entry, _Ready)]
        rounds = [[block(launches) for block, launches in blocks] for _ in range(BLOCKS)]
        samples = iter(zip(*rounds, strict=True))
        for entry in ready:
            yield _with_times(entry.row, next(samples)) if isinstance(entry, _Ready) else entry


@dataclass(frozen=True, slots=True)
class _Ready:
    """A workload that has been checked and can be timed; `block(n)` gives the seconds of each of n launches."""

    row: Row
    block: Callable[[int], float]


def _guarded(bound: BoundWorkload, work: Callable[[], T]) -> T | Row:
    skipped = why_skipped(bound.implementation)
    if skipped is not None:
        return _row(bound, RowStatus.SKIPPED, reason=skipped)
    try:
        return work()
    except BuildError as error:
        return _row(bound, RowStatus.CRASHED, reason=str(error))
    except Exception as error:  # noqa: BLE001 - the suite's code may raise anything; one kernel must not stop the rest
        return _row(bound, RowStatus.CRASHED, reason=f"{type(error).__name__}: {error}")


def _check_row(suite: Suite, bound: BoundWorkload, *, build_dir: Path, seeds: Sequence[int]) -> Row:
    return _checked(suite, bound, build_dir, seeds)[0]


def _checked(suite: Suite, bound: BoundWorkload, build_dir: Path, seeds: Sequence[int]) -> tuple[Row, Launch]:
    implementation, axes = bound.implementation, bound.axes
    launch = None
    for seed in seeds:
        inputs = make_inputs(implementation, axes, seed=seed)
        if launch is None or launch.load is None:
            context = context_for(suite, implementation, build_dir)
            launch = prepare_launch(implementation, context, inputs, axes)
        else:
            launch.load(inputs)
        launch.run()
        reason = check(implementation, axes, launch.output(), reference(implementation, inputs, axes))
        if reason is not None:
            return _row(bound, RowStatus.WRONG_RESULT, reason=f"seed {seed}: {reason}"), launch
    if launch is None:
        raise ValueError("there must be at least one seed")
    return _row(bound, RowStatus.OK, backend=launch.facts.get("backend", "")), launch


def _prepare(suite: Suite, bound: BoundWorkload, *, build_dir: Path) -> _Ready | Row:
    row, launch = _checked(suite, bound, build_dir, (1,))
    if row.status is not RowStatus.OK:
        return row
    if bound.implementation.device == "cuda":
        return _Ready(row, _cuda_block(launch))
    # One thread: its CPU time, which neighbours on the machine do not lengthen.
    clock = time.thread_time_ns if bound.implementation.threads == 1 else time.perf_counter_ns
    return _Ready(row, _cpu_block(launch, clock))


def _launches(block: Callable[[int], float], budget_s: float) -> int:
    once_s = max(block(1), 1e-7)
    return max(1, round(max(budget_s / BLOCKS, SMALLEST_BLOCK_S) / once_s))


def _with_times(row: Row, samples: Sequence[float]) -> Row:
    ordered = sorted(samples)
    median_s = statistics.median(ordered)
    return dataclasses.replace(row, median_s=median_s, spread=(ordered[-2] - ordered[1]) / median_s)


def _cpu_block(launch: Launch, clock: Callable[[], int]) -> Callable[[int], float]:
    def seconds_each(launches: int) -> float:
        launch.run()
        start_ns = clock()
        for _ in range(launches):
            launch.run()
        return (clock() - start_ns) / launches / 1e9

    return seconds_each


def _cuda_block(launch: Launch) -> Callable[[int], float]:
    import cupy

    start, stop = cupy.cuda.Event(), cupy.cuda.Event()

    def seconds_each(launches: int) -> float:
        launch.run()
        start.record()
        for _ in range(launches):
            launch.run()
        stop.record()
        stop.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, stop)) / launches / 1e3

    return seconds_each


def _row(
    bound: BoundWorkload,
    status: RowStatus,
    *,
    reason: str = "",
    backend: str = "",
) -> Row:
    problem = bound.implementation.problem
    return Row(
        key=bound.key,
        family=problem.family,
        status=status,
        reason=reason,
        control=bound.implementation.control,
        flops=problem.flops(bound.axes),
        bytes=problem.bytes(bound.axes, bound.implementation.dtype),
        backend=backend,
    )
