"""A scripted machine: children whose kernels take the time that a script says, under a clock that only they move."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runners.device.base import Conditions
from runners.errors import ChildDiedError
from runners.measure.protocol import Flag, WarmUp
from service.contract import EnvironmentReport

CANARY_S = 1e-3


@dataclass
class Machine:
    """Time, and what every child on it suffers; `kernel(child, launch, now)` gives the seconds of one launch."""

    kernel: Callable[[ScriptedChild, int], float] = lambda _child, _launch: 5e-3
    canary: Callable[[ScriptedChild], float] = lambda _child: CANARY_S
    off_cpu: Callable[[ScriptedChild], float] = lambda _child: 0.0
    answer: Callable[[ScriptedChild, dict[str, Any], dict[str, Any]], dict[str, Any]] = lambda _c, _m, reply: reply
    workloads: tuple[str, ...] = ("k[n=1]",)
    threads: int = 1
    now_s: float = 0.0
    asked: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    children: int = 0

    def clock(self) -> float:
        return self.now_s

    def spawn(self, subject: Any, process: int) -> ScriptedChild:
        self.children += 1
        return ScriptedChild(self, subject.sha, process)


class ScriptedChild:
    def __init__(self, machine: Machine, sha: str, process: int) -> None:
        self.machine, self.sha, self.process = machine, sha, process
        self.pid = 1000 + machine.children
        self.launches = 0
        self.closed = False
        self.rng = random.Random(self.pid)

    def close(self) -> None:
        self.closed = True

    def request(self, message: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        machine = self.machine
        machine.asked.append((self.sha, self.process, message))
        reply = {"ok": True, **getattr(self, "_" + message["op"])(message)}
        return machine.answer(self, message, reply)

    def die(self) -> None:
        raise ChildDiedError("the process ended by itself (signal SIGSEGV)", "")

    def _hello(self, _: Any) -> dict[str, Any]:
        return {}

    def _discover(self, _: Any) -> dict[str, Any]:
        common = {"benchmark": "k", "family": "f", "version": 1, "problem": "p", "device": "cpu", "axes": {"n": 1}}
        common |= {"control": False, "flops": 0.0, "bytes": 0.0, "threads": self.machine.threads, "tier": "core"}
        return {"workloads": [{**common, "workload": key} for key in self.machine.workloads]}

    def _build(self, _: Any) -> dict[str, Any]:
        return {"failed": {}}

    def _prepare(self, _: Any) -> dict[str, Any]:
        return {"output_hash": "abc", "facts": {}}

    def _warm(self, message: dict[str, Any]) -> dict[str, Any]:
        from runners.measure.protocol import warm_up

        steady = warm_up(self._launch, WarmUp(**message["warm_up"]))
        return {"launch_s": steady.launch_s, "settled": steady.settled}

    def _launch(self) -> float:
        seconds = self.machine.kernel(self, self.launches)
        self.launches += 1
        self.machine.now_s += max(seconds, 0.0) if math.isfinite(seconds) else 0.0
        return seconds

    def _canary(self, _: Any) -> dict[str, Any]:
        seconds = self.machine.canary(self)
        self.machine.now_s += seconds
        return {"canary": [seconds, seconds * (1 - 1e-6)]}

    def _copy_canary(self, message: Any) -> dict[str, Any]:
        return self._canary(message)

    def _block(self, message: dict[str, Any]) -> dict[str, Any]:
        self._launch()
        cpu = [self._launch() for _ in range(message["launches"])]
        stretch = 1 / (1 - self.machine.off_cpu(self))
        self.machine.now_s += sum(cpu) * (stretch - 1) if all(map(math.isfinite, cpu)) else 0.0
        return {"wall_s": [s * stretch for s in cpu], "cpu_s": cpu, "involuntary_switches": 0, **self._canary(message)}

    def _launch_canary(self, message: Any) -> dict[str, Any]:
        return self._canary(message)

    def _recheck(self, _: Any) -> dict[str, Any]:
        return {}

    def _static(self, _: Any) -> dict[str, Any]:
        return {"static": {"code_hash": "c0de", "text_bytes": 10}}


@dataclass
class QuietDevice:
    """A device that allows everything and sees nothing, unless a script makes it see."""

    kind: str = "cpu"
    prepares_beside: bool = False
    warm_up: WarmUp = field(default_factory=lambda: WarmUp(block_s=0.002, tolerance=0.03, limit_s=0.5))
    canary_reference_s: float = CANARY_S
    seen: Callable[[], tuple[Flag, ...]] = tuple
    seen_around: tuple[Flag, ...] = ()
    held: list[int] = field(default_factory=list)
    times_taken: int = 0

    def health(self):
        return None

    def environment(self, canary_reference_s: float | None = None) -> EnvironmentReport:
        return EnvironmentReport("scripted", "k", "f", {"canary_reference_s": str(canary_reference_s)})

    @contextmanager
    def taken(self) -> Iterator[None]:
        self.times_taken += 1
        yield

    def hello(self) -> dict[str, str]:
        return {}

    def clock_stood(self, before: Conditions, after: Conditions) -> bool:
        return True

    def hold(self, pid: int, *, threads: int) -> tuple[Flag, ...]:
        self.held.append(pid)
        return ()

    def look(self, pid: int) -> Conditions:
        return Conditions(0.0, {})

    def judge(self, before: Conditions, after: Conditions, reply: dict[str, Any]) -> tuple[Flag, ...]:
        return self.seen()

    def look_around(self) -> Conditions:
        return Conditions(0.0, {})

    def judge_session(self, before: Conditions, after: Conditions) -> tuple[Flag, ...]:
        return self.seen_around
