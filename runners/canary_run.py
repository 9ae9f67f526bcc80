"""A canary run: only the machine is measured, nothing of any commit.

It is how a runner in quarantine shows that it is well again. The canaries are those of every run, timed in several
fresh processes with pauses between, because a neighbour's burst lasts about a second.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runners.device.base import Device
from runners.errors import ChildError, ChildGarbageError
from runners.measure import nothing
from runners.measure.protocol import Flag
from runners.measure.team import ChildHandle, ModuleSubject
from service.contract import EnvironmentReport

PROCESSES = 4
FRAMES = 12  # compute canaries of one process
COPIES = 3
TIMEOUT_S = 60.0
CONTENDED_SHARE = 0.5
NOTHING = ModuleSubject(sha="", module=Path(nothing.__file__), kernel="nothing", slow_pct=0.0)

Pair = tuple[float, float]  # wall and thread-CPU seconds


class Progress(Protocol):
    """Says how far the work is; raises when it must stop."""

    def __call__(self, stage: str, done: int, total: int) -> object:
        """Note it."""


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """The machine's canaries in seconds on both clocks (of compute the lower quartile, of memory the median)."""

    compute_s: Pair
    memory_s: Pair
    flags: tuple[str, ...]
    environment: EnvironmentReport
    device_s: float


def measure_canaries(
    *,
    spawn: Callable[[], ChildHandle],
    device: Device,
    reference_s: float | None,
    progress: Progress,
    clock: Callable[[], float],
    pause: Callable[[], None],
) -> CanaryResult:
    """Time the canaries in fresh processes on the device. Raises ChildError and DeviceError."""
    compute: list[Pair] = []
    memory: list[Pair] = []
    flags: list[Flag] = []
    with device.taken():
        started_s, around = clock(), device.look_around()
        for process in range(PROCESSES):
            progress("canary", process, PROCESSES)
            child = spawn()
            try:
                flags += _one_process(child, device, compute, memory)
            finally:
                child.close()
            pause()
        session = device.judge_session(around, device.look_around())
        environment, device_s = device.environment(reference_s), clock() - started_s
    contended = Flag.CONTENDED in session or flags.count(Flag.CONTENDED) >= CONTENDED_SHARE * PROCESSES
    others = {flag for flag in flags if flag is not Flag.CONTENDED}
    return CanaryResult(
        compute_s=_of_pairs(compute, lambda values: statistics.quantiles(values, n=4)[0]),
        memory_s=_of_pairs(memory, statistics.median),
        flags=tuple(sorted({*others, *([Flag.CONTENDED] if contended else [])})),
        environment=environment,
        device_s=device_s,
    )


def _one_process(child: ChildHandle, device: Device, compute: list[Pair], memory: list[Pair]) -> list[Flag]:
    _ask(child, {**NOTHING.hello(), "device": device.kind, **device.hello()})
    flags = list(device.hold(child.pid, threads=1))
    _frame(child, "canary")  # the first one warms up
    before = device.look(child.pid)
    mine = [_frame(child, "canary") for _ in range(FRAMES)]
    copies = [_frame(child, "copy_canary") for _ in range(COPIES)]
    reply = {"wall_s": [wall_s for wall_s, _ in mine], "cpu_s": [cpu_s for _, cpu_s in mine]}
    flags += device.judge(before, device.look(child.pid), reply)
    compute += mine
    memory += copies
    return flags


def _frame(child: ChildHandle, operation: str) -> Pair:
    reply = _ask(child, {"op": operation})
    try:
        wall_s, cpu_s = reply["canary"]
        return float(wall_s), float(cpu_s)
    except (KeyError, TypeError, ValueError) as error:
        raise ChildGarbageError("the child's canary frame is not two numbers") from error


def _ask(child: ChildHandle, message: dict[str, Any]) -> dict[str, Any]:
    reply = child.request(message, timeout_s=TIMEOUT_S)
    if not reply.get("ok"):
        raise ChildError(f"the canary cannot run: {reply.get('error')}", "")
    return reply


def _of_pairs(pairs: list[Pair], summary: Callable[[list[float]], float]) -> Pair:
    return summary([wall_s for wall_s, _ in pairs]), summary([cpu_s for _, cpu_s in pairs])
