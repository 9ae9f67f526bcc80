"""The children of one replicate, one per subject, and what may be asked of them.

A team turns requests into blocks: it frames each block between canaries, keeps its parent's own clock beside the
child's, and lets the device judge the conditions. What a child says is believed only within what the parent saw.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from runners.device.base import Device
from runners.errors import ChildError, ChildGarbageError, RunnerError
from runners.measure.canary import REPETITIONS
from runners.measure.houses import NotMeasurableError
from runners.measure.protocol import Flag, claims_too_little, claims_too_much, launches_for
from service.contract import FailureKind, FailureStage, ProtocolParams, RunFailure, SampleBlock

HELLO_TIMEOUT_S = 60.0
BUILD_TIMEOUT_S = 240.0
PREPARE_TIMEOUT_S = 60.0
BLOCK_TIMEOUT_S = 20.0
BETWEEN_MAX_S = 5e-3  # of each sample, spent on flushing, delays and queueing; a child cannot explain more away
BETWEEN_SPARE_S = 0.25  # beside them: the untimed launch and a canary
CANARY_LAUNCHES = REPETITIONS + 1
RAN_SPARE_S = 5e-3  # of a child's own time, for reading the request and writing the answer
RAN_SHARE = 1 / 3  # an honest block on a busy machine stays below two thirds of that


@dataclass(frozen=True, slots=True)
class Warmed:
    """What the warm-up of a kernel found: samples in a block, whether it settled, and how it is timed."""

    count: int
    settled: bool
    launches: int | None = None  # in a sample, where the device plans that
    method: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """One commit to measure: where its suite is checked out and where its libraries go."""

    sha: str
    suite_dir: Path
    build_dir: Path

    def hello(self) -> dict[str, Any]:
        """What a fresh child must be told first."""
        return {"op": "hello", "suite_dir": str(self.suite_dir), "build_dir": str(self.build_dir)}


@dataclass(frozen=True, slots=True)
class ModuleSubject:
    """One variant of a callable: a file with `make(kernel, slow_pct)`."""

    sha: str
    module: Path
    kernel: str
    slow_pct: float

    def hello(self) -> dict[str, Any]:
        """What a fresh child must be told first."""
        return {"op": "hello", "module": str(self.module), "kernel": self.kernel, "slow_pct": self.slow_pct}


AnySubject = Subject | ModuleSubject


class ChildHandle(Protocol):
    """A child process: sandboxed on a runner, plain on a laptop, scripted in tests."""

    @property
    def pid(self) -> int:
        """Its process id: the device pins and watches it by this."""

    def request(self, message: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Ask one thing; raises ChildError when it dies, hangs or talks garbage."""

    def close(self) -> None:
        """Kill it and all it started."""


Spawn = Callable[[Any, int], ChildHandle]


class CodeReader(Protocol):
    """What tells of the machine code of CUDA sources (`cuda_code.CudaCode`)."""

    def facts_of(self, suite_dir: Path, sources: tuple[str, ...], flags: tuple[str, ...]) -> dict[str, float | str]:
        """Facts of these files on every architecture, or `static_missing` with the reason."""


class SubjectBrokenError(RunnerError):
    """A whole commit cannot be measured."""

    kind = FailureKind.PERMANENT

    def __init__(self, sha: str, failure: RunFailure) -> None:
        super().__init__(failure.reason)
        self.sha = sha
        self.failure = failure


class Team:
    """Children are spawned as they are first needed, so that a broken subject costs nothing more."""

    def __init__(
        self,
        subjects: Sequence[AnySubject],
        *,
        process: int,
        spawn: Spawn,
        device: Device,
        params: ProtocolParams,
        clock: Callable[[], float],
        code: CodeReader | None = None,
    ) -> None:
        self.subjects = list(subjects)
        self._code = code
        self.process = process
        self._spawn = spawn
        self._device = device
        self._params = params
        self._clock = clock
        self._children: dict[str, ChildHandle] = {}
        self._canary: dict[str, tuple[float, float]] = {}
        self._order = 0

    def close(self) -> None:
        """End every child."""
        for child in self._children.values():
            child.close()

    def discover(self, sha: str, tier: str, *, device: str | None = None) -> list[dict[str, Any]]:
        """The workloads that a subject offers for `device` (by default the one that is measured on)."""
        message = {"op": "discover", "tier": tier, "device": device or self._device.kind}
        return list(self._whole(sha, message, FailureStage.DISCOVER, HELLO_TIMEOUT_S)["workloads"])

    def build(self, sha: str, keys: tuple[str, ...]) -> dict[str, str]:
        """Compile what the workloads need; why each that failed did."""
        message = {"op": "build", "workloads": list(keys)}
        return dict(self._whole(sha, message, FailureStage.BUILD, BUILD_TIMEOUT_S)["failed"])

    def prepare(self, sha: str, key: str, *, proven_hash: str | None) -> dict[str, Any]:
        """Make the recipe's inputs and prove the result right.

        Every process and commit times the same inputs, because cost may depend on the data (fault F11); what the
        kernel could learn of them by heart, the re-check on unknown inputs finds out.
        """
        message = {"op": "prepare", "workload": key, "seed": self._params.seed, "proven_hash": proven_hash}
        return self._ask(sha, message, PREPARE_TIMEOUT_S)

    def hold(self, threads: int) -> set[Flag]:
        """Put every child on the device."""
        return {flag for s in self.subjects for flag in self._device.hold(self._child(s.sha).pid, threads=threads)}

    def warm(self, sha: str, key: str, *, threads: int, launches: int | None = None) -> Warmed:
        """Warm a kernel up until it and the device's clock stand still, or the limit is spent.

        `launches` in a sample, if they are known from another process, so that all compare like with like.
        """
        message = {
            "op": "warm",
            "workload": key,
            "clock": "cpu" if threads == 1 and self._device.kind == "cpu" else "wall",
            "warm_up": dataclasses.asdict(self._device.warm_up),
            "launches": launches,
        }
        pid, begun_s = self._child(sha).pid, self._clock()
        while True:
            before = self._device.look(pid)
            reply = self._ask(sha, message, PREPARE_TIMEOUT_S)
            stood = self._device.clock_stood(before, self._device.look(pid))
            if stood or self._clock() - begun_s >= self._device.warm_up.limit_s:
                break
        sample_s = float(reply.get("sample_s", reply["launch_s"]))
        facts = {f"fact.{name}": str(reply[name]) for name in ("method", "reason", "symbols") if reply.get(name)}
        return Warmed(
            count=launches_for(sample_s, self._params.block_s),
            settled=bool(reply["settled"]) and stood,
            launches=int(reply["launches"]) if reply.get("launches") else None,
            method=str(reply.get("method", "")),
            facts=facts,
        )

    def block(self, sha: str, key: str, launches: int) -> SampleBlock:
        """Time one block between two canary frames and judge it."""
        child = self._child(sha)
        if sha not in self._canary:
            self._canary[sha] = _frame(self._ask(sha, {"op": "canary"}, BLOCK_TIMEOUT_S))
        before = self._device.look(child.pid)
        asked_s = self._clock()
        message = {"op": "block", "workload": key, "launches": launches, "canary": True}
        reply = self._ask(sha, message, BLOCK_TIMEOUT_S + 20 * self._params.block_s)
        request_s = self._clock() - asked_s
        opened, closed = self._canary[sha], _frame(reply)
        wall_s, cpu_s = tuple(map(float, reply["wall_s"])), tuple(map(float, reply["cpu_s"]))
        after = self._device.look(child.pid)
        flags = set(self._device.judge(before, after, reply))
        claimed_s = math.fsum(wall_s) * int(reply.get("inner", 1))
        if claims_too_much(claimed_s=claimed_s, request_s=request_s) or lost_records(wall_s, asked=launches):
            flags.add(Flag.IMPLAUSIBLE)
        between_s = min(float(reply.get("between_s", 0.0)), BETWEEN_MAX_S * launches + BETWEEN_SPARE_S)
        explained_s = claimed_s + max(between_s, 0.0)
        if "ran_s" in before.readings and "ran_s" in after.readings:  # the system knows better than a late parent
            ran_s = after.readings["ran_s"] - before.readings["ran_s"]
            beside_s = RAN_SPARE_S + CANARY_LAUNCHES * closed[0]
            lies = claims_too_little(
                claimed_s=explained_s, request_s=ran_s, launches=launches, beside_s=beside_s, hidden_share=RAN_SHARE
            )
        else:
            lies = claims_too_little(claimed_s=explained_s, request_s=request_s, launches=launches)
        if lies:
            flags.add(Flag.IMPLAUSIBLE)
        block = SampleBlock(
            process=self.process,
            order=self._order,
            wall_s=wall_s,
            cpu_s=cpu_s,
            canary_wall_s=(opened[0] + closed[0]) / 2,
            canary_cpu_s=(opened[1] + closed[1]) / 2,
            flags=tuple(sorted(flags)),
        )
        self._order += 1
        self._canary[sha] = closed
        return block

    def recheck(self, sha: str, key: str, seed: int) -> None:
        """Prove the result right again on inputs that were unknown before."""
        self._ask(sha, {"op": "recheck", "workload": key, "seed": seed}, PREPARE_TIMEOUT_S)

    def static(self, sha: str, key: str) -> dict[str, Any]:
        """Machine-code facts; CUDA sources are only named by the child and compiled apart, where that can be done."""
        found = dict(self._ask(sha, {"op": "static", "workload": key}, PREPARE_TIMEOUT_S)["static"])
        sources, flags = found.pop("cuda_sources", None), found.pop("cuda_flags", ())
        subject = next(s for s in self.subjects if s.sha == sha)
        if sources and self._code is not None and isinstance(subject, Subject):
            names, options = tuple(map(str, sources)), tuple(map(str, flags))
            found |= self._code.facts_of(subject.suite_dir, names, options)
        return found

    def copy_canary(self, sha: str) -> tuple[float, float]:
        """Wall and thread-CPU seconds of the health canary of memory."""
        return _frame(self._ask(sha, {"op": "copy_canary"}, BLOCK_TIMEOUT_S))

    def launch_canary(self, sha: str) -> float:
        """Wall seconds of the health canary of launching."""
        return _frame(self._ask(sha, {"op": "launch_canary"}, BLOCK_TIMEOUT_S))[0]

    def _child(self, sha: str) -> ChildHandle:
        if sha not in self._children:
            subject = next(s for s in self.subjects if s.sha == sha)
            self._children[sha] = self._spawn(subject, self.process)
            hello = {**subject.hello(), **self._device.hello(), "device": self._device.kind}
            self._whole(sha, hello, FailureStage.DISCOVER, HELLO_TIMEOUT_S)
        return self._children[sha]

    def _whole(self, sha: str, message: dict[str, Any], stage: FailureStage, timeout_s: float) -> dict[str, Any]:
        """Ask something on which the whole subject depends."""
        try:
            reply = self._child(sha).request(message, timeout_s=timeout_s)
        except ChildError as error:
            failure = RunFailure(stage, FailureKind.PERMANENT, error.reason, error.log_tail)
            raise SubjectBrokenError(sha, failure) from error
        if not reply.get("ok"):
            failure = RunFailure(stage, FailureKind.PERMANENT, str(reply.get("error")), str(reply.get("log_tail", "")))
            raise SubjectBrokenError(sha, failure)
        return reply

    def _ask(self, sha: str, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask something on which one workload depends."""
        reply = self._child(sha).request(message, timeout_s=timeout_s)
        if not reply.get("ok"):
            raise NotMeasurableError(str(reply.get("kind", "crashed")), str(reply.get("error")))
        return reply


def lost_records(times_s: Sequence[float], *, asked: int) -> bool:
    """Whether a block carries another number of samples than were asked for (F8)."""
    return len(times_s) != asked


def _frame(reply: dict[str, Any]) -> tuple[float, float]:
    try:
        wall_s, cpu_s = reply["canary"]
        return float(wall_s), float(cpu_s)
    except (KeyError, TypeError, ValueError) as error:
        raise ChildGarbageError("the child's canary frame is not two numbers") from error
