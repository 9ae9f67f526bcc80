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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from runners.device.base import Device
from runners.errors import ChildError, ChildTimedOutError, DeviceError, RunnerError
from runners.measure.houses import NotMeasurableError
from runners.measure.ledger import Entry
from runners.measure.protocol import Flag, drifts
from runners.measure.team import AnySubject, ChildHandle, Spawn, Subject, SubjectBrokenError, Team
from service.contract import (
    CommitFailure,
    FailureKind,
    FailureStage,
    MeasurementReport,
    ProtocolParams,
    RunFailure,
)

__all__ = ["ChildHandle", "SessionResult", "Spawn", "Subject", "measure_commits"]

ATTEMPTS_MAX = 60  # of one replicate: each costs one workload that killed its process, or one commit

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
    copy_canary_s: float | None
    canary_reference_s: float
    device_s: float
    processes: int


@dataclass(slots=True)
class _Canaries:
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    copy_s: list[float] = field(default_factory=list)


def measure_commits(
    subjects: Sequence[AnySubject],
    *,
    spawn: Spawn,
    device: Device,
    params: ProtocolParams,
    workloads: Sequence[str] = (),
    tier: str = "core",
    progress: Progress = lambda _stage, _done, _total: True,
    rng: random.Random,
    clock: Callable[[], float],
) -> SessionResult:
    """Measure `workloads` (empty: the whole tier) of every subject and report figures with all raw samples.

    Raises HoldLostError when `progress` answers False, and DeviceError when the device cannot be used.
    """
    session = _Session(subjects, spawn=spawn, device=device, params=params, progress=progress, rng=rng, clock=clock)
    with device.taken():
        started_s = clock()
        processes = session.run(tuple(workloads), tier)
        device_s = clock() - started_s
    return session.result(device_s, processes)


class _Session:
    def __init__(
        self,
        subjects: Sequence[AnySubject],
        *,
        spawn: Spawn,
        device: Device,
        params: ProtocolParams,
        progress: Progress,
        rng: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self._subjects = list(subjects)
        self._spawn = spawn
        self._device = device
        self._params = params
        self._progress = progress
        self._rng = rng
        self._clock = clock
        self._reference_s = params.canary_reference_s or device.canary_reference_s
        self._entries: dict[str, dict[str, Entry]] = {}  # sha -> workload key -> entry
        self._broken: dict[str, RunFailure] = {}
        self._canaries = _Canaries()
        self._flags: set[str] = set()

    def run(self, workloads: tuple[str, ...], tier: str) -> int:
        """Replicate until everything is done, the processes are used up or the budget is spent."""
        started_s = self._clock()
        replicate_s = 0.0
        for process in range(self._params.processes):
            begun_s = self._clock()
            if process and not self._open_entries():
                return process
            if process and begun_s + replicate_s - started_s > self._params.budget_s:
                self._flags.add(Flag.SHORT_OF_TIME)
                return process
            self._tell("measure", process)
            self._replicate(process, workloads, tier)
            replicate_s = self._clock() - begun_s
        return self._params.processes

    def _open_entries(self) -> list[Entry]:
        """Workloads still to measure; an interleaved one goes on until it is done for every subject."""
        alive = [by_key for sha, by_key in self._entries.items() if sha not in self._broken]
        wanted = {e.key for by_key in alive for e in by_key.values() if not e.done(self._params, self._reference_s)}
        return [e for by_key in alive for e in by_key.values() if e.key in wanted and e.failed is None]

    def _tell(self, stage: str, done: int) -> None:
        if not self._progress(stage, done, self._params.processes):
            raise HoldLostError("the run was taken from this runner while it measured")

    def _replicate(self, process: int, workloads: tuple[str, ...], tier: str) -> None:
        """One fresh process per subject; a kernel that kills its process is left out and the process is replaced."""
        for _ in range(ATTEMPTS_MAX):
            subjects = [s for s in self._subjects if s.sha not in self._broken]
            if not subjects:
                return
            team = Team(
                subjects,
                process=process,
                spawn=self._spawn,
                device=self._device,
                params=self._params,
                clock=self._clock,
            )
            try:
                if self._attempt(team, process, workloads, tier):
                    return
            except SubjectBrokenError as broken:
                self._broken[broken.sha] = broken.failure
            finally:
                team.close()
        raise DeviceError("children keep dying: no process could be brought to measure")

    def _attempt(self, team: Team, process: int, workloads: tuple[str, ...], tier: str) -> bool:
        """Bring one team through its replicate; False when a child died and a new team must try again."""
        for subject in team.subjects:
            if subject.sha not in self._entries:
                self._entries[subject.sha] = self._discover(team, subject, workloads, tier)
        self._tell("build", process)
        entries = self._open_entries()
        if process == 0:
            self._build(team, entries)
            entries = self._open_entries()
        if not entries:
            return True
        try:
            self._prepare(team, entries, process)
            entries = [e for e in entries if e.failed is None]
            self._time(team, entries)
            if process == 0:
                self._close_first(team, entries)
        except _WorkloadDiedError as died:
            kind = "timed_out" if isinstance(died.cause, ChildTimedOutError) else "crashed"
            died.entry.fail(kind, f"{died.doing}: {died.cause.reason}")
            self._drop_blocks_of(process)
            return False
        return True

    def _discover(self, team: Team, subject: AnySubject, workloads: tuple[str, ...], tier: str) -> dict[str, Entry]:
        found = {d["workload"]: d for d in team.discover(subject.sha, "weekly" if workloads else tier)}
        wanted = workloads or tuple(found)
        entries = {key: Entry(subject.sha, found[key]) for key in wanted if key in found}
        if not entries:
            reason = f"the suite offers none of the workloads asked for ({', '.join(wanted[:5]) or tier})"
            raise SubjectBrokenError(subject.sha, RunFailure(FailureStage.DISCOVER, FailureKind.PERMANENT, reason))
        return entries

    def _build(self, team: Team, entries: list[Entry]) -> None:
        for subject in team.subjects:
            own = [e for e in entries if e.sha == subject.sha]
            failed = team.build(subject.sha, tuple(e.key for e in own))
            for entry in own:
                if entry.key in failed:
                    entry.fail("build", f"cannot build: {failed[entry.key]}")
            if own and all(e.key in failed for e in own):
                reason = next(iter(failed.values()))
                failure = RunFailure(FailureStage.BUILD, FailureKind.PERMANENT, reason.splitlines()[0], reason)
                raise SubjectBrokenError(subject.sha, failure)

    def _prepare(self, team: Team, entries: list[Entry], process: int) -> None:
        for entry in entries:
            # The first process uses the seed of the order, so that output hashes of commits can be compared.
            seed = self._params.seed if process == 0 else self._rng.getrandbits(32)
            with self._blaming(entry, "preparing"):
                reply = team.prepare(entry.sha, entry.key, seed)
                if process == 0:
                    entry.output_hash = reply.get("output_hash")
                    entry.static.update({f"fact.{k}": v for k, v in reply.get("facts", {}).items()})

    def _time(self, team: Team, entries: list[Entry]) -> None:
        threads = max((e.threads for e in entries), default=1)
        self._flags.update(team.hold(threads))
        for entry in entries:
            with self._blaming(entry, "warming up"):
                entry.launches, settled = team.warm(entry.sha, entry.key, threads=entry.threads)
                if not settled:
                    entry.flags.add(Flag.NO_STEADY_STATE)
        team.open_frames()
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

    def _block(self, team: Team, entry: Entry) -> None:
        if entry.failed is not None:
            return
        with self._blaming(entry, "timing"):
            block = team.block(entry.sha, entry.key, entry.launches)
            entry.blocks.append(block)
            self._canaries.wall_s.append(block.canary_wall_s)
            self._canaries.cpu_s.append(block.canary_cpu_s)

    def _close_first(self, team: Team, entries: list[Entry]) -> None:
        """Check again on data nobody knew before, and read the machine code while the libraries are loaded."""
        for entry in entries:
            if entry.failed is None:
                with self._blaming(entry, "checking again"):
                    team.recheck(entry.sha, entry.key, self._rng.getrandbits(32))
            if entry.failed is None:
                with self._blaming(entry, "reading its code"):
                    found = team.static(entry.sha, entry.key)
                    entry.code_hash = found.pop("code_hash", None)
                    entry.static.update(found)
        self._canaries.copy_s.extend(team.copy_canaries())

    @contextmanager
    def _blaming(self, entry: Entry, doing: str) -> Iterator[None]:
        """Charge whatever goes wrong to one workload; a dead child also costs the replicate."""
        try:
            yield
        except NotMeasurableError as error:
            entry.fail(error.kind_name, f"{doing}: {error}")
        except ChildError as error:
            raise _WorkloadDiedError(entry, doing, error) from error

    def _drop_blocks_of(self, process: int) -> None:
        for by_key in self._entries.values():
            for entry in by_key.values():
                entry.blocks = [b for b in entry.blocks if b.process != process]

    def result(self, device_s: float, processes: int) -> SessionResult:
        """Turn the ledger into reports."""
        measurements = tuple(
            entry.report(self._reference_s)
            for sha, by_key in self._entries.items()
            if sha not in self._broken
            for entry in by_key.values()
        )
        if drifts([math.log(t) for t in self._canaries.cpu_s if t > 0]):
            self._flags.add(Flag.DRIFT)
        failures = tuple(CommitFailure(sha, failure) for sha, failure in self._broken.items())
        return SessionResult(
            measurements=measurements,
            commit_failures=failures,
            flags=tuple(sorted(self._flags)),
            canary_wall_s=_median(self._canaries.wall_s),
            canary_cpu_s=_median(self._canaries.cpu_s),
            copy_canary_s=_median(self._canaries.copy_s),
            canary_reference_s=self._reference_s,
            device_s=device_s,
            processes=processes,
        )


class _WorkloadDiedError(RunnerError):
    """A workload took its process down."""

    kind = FailureKind.PERMANENT

    def __init__(self, entry: Entry, doing: str, cause: ChildError) -> None:
        super().__init__(cause.reason)
        self.entry = entry
        self.doing = doing
        self.cause = cause


def palindrome(entries: Sequence[Entry], rng: random.Random) -> list[Entry]:
    """ABBA or BAAB by coin toss (any number of subjects: a random order, then its mirror); one subject: one block."""
    if len(entries) < 2:
        return list(entries)
    order = list(entries)
    rng.shuffle(order)
    return order + order[::-1]


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
