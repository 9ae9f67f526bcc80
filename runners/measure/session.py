"""Measure one commit, or several interleaved, over fresh processes: the engine behind every run.

One subject gives history points. Several subjects are timed in palindromes of coin-tossed order (ABBA or BAAB for
two), each in a process of its own, so that what drifts while they run cancels between them. The process is the unit
of replication; workloads that have reached their half-width leave the plan, the others get the time.

Steps of one replicate: 1 spawn a child per subject, 2 build and prove each kernel right (anywhere, any priority),
3 hold the children on the device and warm up, 4 rounds of blocks shuffled over the suite, each closed by a canary,
5 re-check on fresh inputs (first replicate), 6 close.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runners.device.base import Device
from runners.errors import DeviceError, RunnerError
from runners.measure.crew import ATTEMPTS_MAX, Crew, WorkloadDiedError, blaming
from runners.measure.identical import IdenticalCode, read_code
from runners.measure.ledger import Entry, HalfWidthStopping, Stopping
from runners.measure.protocol import Flag, drifts
from runners.measure.team import AnySubject, ChildHandle, CodeReader, Spawn, Subject, Team
from service.contract import CommitFailure, EnvironmentReport, FailureKind, MeasurementReport, ProtocolParams

__all__ = ["ChildHandle", "HoldLostError", "SessionResult", "Spawn", "Subject", "measure_commits"]

Progress = Callable[[str, int, int], bool]


class HoldLostError(RunnerError):
    """The service no longer wants this run from us: stop and drop it."""

    kind = FailureKind.TRANSIENT


@dataclass(frozen=True, slots=True)
class SessionResult:
    """Everything a session found; `device_s` is the time the device was held."""

    measurements: tuple[MeasurementReport, ...]
    commit_failures: tuple[CommitFailure, ...]
    flags: tuple[str, ...]
    canary_wall_s: float | None
    canary_cpu_s: float | None
    copy_canary_wall_s: float | None
    copy_canary_cpu_s: float | None
    launch_canary_s: float | None
    environment: EnvironmentReport
    canary_reference_s: float
    device_s: float
    processes: int


@dataclass(slots=True)
class _Canaries:
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    copy_wall_s: list[float] = field(default_factory=list)
    copy_cpu_s: list[float] = field(default_factory=list)
    launch_s: list[float] = field(default_factory=list)


def measure_commits(
    subjects: Sequence[AnySubject],
    *,
    spawn: Spawn,
    device: Device,
    params: ProtocolParams,
    workloads: Sequence[str] = (),
    tier: str = "core",
    progress: Progress = lambda _stage, _done, _total: True,
    code: CodeReader | None = None,
    identical: IdenticalCode = IdenticalCode.TIMED,
    rng: random.Random,
    clock: Callable[[], float],
    stopping: Stopping | None = None,
) -> SessionResult:
    """Measure `workloads` (empty: the whole tier) of every subject and report figures with all raw samples.

    `stopping` decides when a workload needs no further process; the default is the half-width of its history point.
    `identical` says whether workloads whose code a partner has as well are timed.
    Raises HoldLostError when `progress` answers False, and DeviceError when the device cannot be used.
    """
    reference_s = params.canary_reference_s or device.canary_reference_s
    crew = Crew(
        subjects,
        spawn=spawn,
        device=device,
        params=params,
        clock=clock,
        workloads=tuple(workloads),
        tier=tier,
        code=code,
        identical=identical,
    )
    session = _Session(
        crew,
        params=params,
        progress=progress,
        rng=rng,
        clock=clock,
        reference_s=reference_s,
        stopping=stopping or HalfWidthStopping(params, reference_s),
    )
    with device.taken():
        before, around = device.environment(reference_s), device.look_around()
        started_s = clock()
        try:
            processes = session.run()
        finally:
            crew.close()
        device_s = clock() - started_s
        crew.ledger.flag(device.judge_session(around, device.look_around()))
        after = device.environment(reference_s)
    if before.comparable_key != after.comparable_key:
        crew.ledger.spoil("the environment changed while it was measured: its key is another than at the start")
    return session.result(device_s, processes, after)


class _Session:
    def __init__(
        self,
        crew: Crew,
        *,
        params: ProtocolParams,
        progress: Progress,
        rng: random.Random,
        clock: Callable[[], float],
        reference_s: float,
        stopping: Stopping,
    ) -> None:
        self._crew = crew
        self._ledger = crew.ledger
        self._params = params
        self._progress = progress
        self._rng = rng
        self._clock = clock
        self._reference_s = reference_s
        self._stopping = stopping
        self._canaries = _Canaries()
        self._flags: set[str] = set()

    def run(self) -> int:
        """Replicate until everything is done, the processes are used up or the budget is spent."""
        started_s = self._clock()
        replicate_s = 0.0
        for process in range(self._params.processes):
            begun_s = self._clock()
            if process and not self._open_entries(process):
                return process
            if process >= self._stopping.processes_min and begun_s + replicate_s - started_s > self._params.budget_s:
                self._flags.add(Flag.SHORT_OF_TIME)
                return process
            self._tell("measure" if process else "build", process)
            self._replicate(process)
            replicate_s = self._clock() - begun_s
        return self._params.processes

    def _open_entries(self, processes: int) -> list[Entry]:
        """Workloads still to measure; an interleaved one goes on until the rule is content with all its subjects."""
        by_key: dict[str, list[Entry]] = {}
        for entry in self._ledger.measurable():
            by_key.setdefault(entry.key, []).append(entry)
        open_keys = {k for k, entries in by_key.items() if not self._stopping.finished(entries, processes=processes)}
        return [entry for key, entries in by_key.items() if key in open_keys for entry in entries]

    def _tell(self, stage: str, done: int) -> None:
        if not self._progress(stage, done, self._params.processes):
            raise HoldLostError("the run was taken from this runner while it measured")

    def _replicate(self, process: int) -> None:
        """One fresh process per subject; a kernel that kills its process is left out and the process is replaced."""
        for _ in range(ATTEMPTS_MAX):
            team = self._crew.take_team(process)
            if team is None:
                return
            try:
                if process + 1 < self._params.processes:
                    self._crew.prepare_next()
                self._time(team, self._open_entries(process))
            except WorkloadDiedError as died:
                died.record()
                self._ledger.drop_blocks_of(process)
            else:
                return
            finally:
                team.close()
        raise DeviceError("children keep dying: no process could be brought to measure")

    def _time(self, team: Team, entries: list[Entry]) -> None:
        """Hold, warm up, time the rounds; the first process also checks again and reads the machine code."""
        self._flags.update(team.hold(max((e.threads for e in entries), default=1)))
        for entry in entries:
            with blaming(entry, "warming up"):
                known = self._ledger.launches.get(entry.key)
                warmed = team.warm(entry.sha, entry.key, threads=entry.threads, launches=known)
                entry.note(warmed)
                if warmed.launches is not None:
                    self._ledger.launches.setdefault(entry.key, warmed.launches)
        by_key: dict[str, list[Entry]] = {}
        for entry in entries:
            by_key.setdefault(entry.key, []).append(entry)
        for _ in range(self._params.blocks):
            keys = list(by_key)
            self._rng.shuffle(keys)
            for key in keys:
                for entry in palindrome([e for e in by_key[key] if e.failed is None], self._rng):
                    self._block(team, entry)
            self._tell("measure", team.process)
        if team.process == 0:
            self._close_first(team, entries)

    def _block(self, team: Team, entry: Entry) -> None:
        if entry.failed is not None:
            return
        with blaming(entry, "timing"):
            block = team.block(entry.sha, entry.key, entry.launches)
            entry.blocks.append(block)
            self._canaries.wall_s.append(block.canary_wall_s)
            self._canaries.cpu_s.append(block.canary_cpu_s)

    def _close_first(self, team: Team, entries: list[Entry]) -> None:
        """Check again on data nobody knew before, and read the machine code while the libraries are loaded."""
        for entry in entries:
            if entry.failed is None:
                with blaming(entry, "checking again"):
                    team.recheck(entry.sha, entry.key, self._rng.getrandbits(32))
            if entry.failed is None:
                read_code(team, entry)
            if entry.failed is None:
                with blaming(entry, "looking at the memory"):
                    copy_wall_s, copy_cpu_s = team.copy_canary(entry.sha)
                    self._canaries.copy_wall_s.append(copy_wall_s)
                    self._canaries.copy_cpu_s.append(copy_cpu_s)
                    self._canaries.launch_s.append(team.launch_canary(entry.sha))

    def result(self, device_s: float, processes: int, environment: EnvironmentReport) -> SessionResult:
        """Turn the ledger into reports."""
        measurements = tuple(entry.report(self._reference_s) for entry in self._ledger.reportable())
        if drifts([math.log(t) for t in self._canaries.cpu_s if t > 0]):
            self._flags.add(Flag.DRIFT)
        failures = tuple(CommitFailure(sha, failure) for sha, failure in self._ledger.broken.items())
        return SessionResult(
            measurements=measurements,
            commit_failures=failures,
            flags=tuple(sorted(self._flags)),
            canary_wall_s=_median(self._canaries.wall_s),
            canary_cpu_s=_median(self._canaries.cpu_s),
            copy_canary_wall_s=_median(self._canaries.copy_wall_s),
            copy_canary_cpu_s=_median(self._canaries.copy_cpu_s),
            launch_canary_s=_median(self._canaries.launch_s),
            environment=environment,
            canary_reference_s=self._reference_s,
            device_s=device_s,
            processes=processes,
        )


def palindrome(entries: Sequence[Entry], rng: random.Random) -> list[Entry]:
    """ABBA or BAAB by coin toss (any number of subjects: a random order, then its mirror); one subject: one block."""
    if len(entries) < 2:
        return list(entries)
    order = list(entries)
    rng.shuffle(order)
    return order + order[::-1]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
