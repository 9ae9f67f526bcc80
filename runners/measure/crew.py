"""Bringing teams up: spawn, discover, build, prove right; the next team while the present one is timed.

What is slow and needs no quiet (starting Python, importing, compiling, checking) happens beside the timed core when
the device has room for that, so that a budget buys more fresh processes, which is where the precision is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from runners.device.base import Device
from runners.errors import ChildError, ChildGarbageError, ChildTimedOutError, DeviceError, RunnerError
from runners.measure.houses import NotMeasurableError
from runners.measure.identical import IdenticalCode, settle
from runners.measure.ledger import Entry, Ledger
from runners.measure.team import AnySubject, CodeReader, Spawn, SubjectBrokenError, Team
from service.contract import CANNOT_BUILD, FailureKind, FailureStage, ProtocolParams, RunFailure

ATTEMPTS_MAX = 60  # of one replicate: each costs one workload that killed its process, or one commit


class WorkloadDiedError(RunnerError):
    """A workload took its process down."""

    kind = FailureKind.PERMANENT

    def __init__(self, entry: Entry, doing: str, cause: ChildError) -> None:
        super().__init__(cause.reason)
        self._entry = entry
        self._doing = doing
        self._cause = cause

    def record(self) -> None:
        """Charge it to the workload."""
        kind = "timed_out" if isinstance(self._cause, ChildTimedOutError) else "crashed"
        self._entry.fail(kind, f"{self._doing}: {self._cause.reason}")


@contextmanager
def blaming(entry: Entry, doing: str) -> Iterator[None]:
    """Charge whatever goes wrong to one workload; a dead child also costs the replicate."""
    try:
        yield
    except NotMeasurableError as error:
        entry.fail(error.kind_name, f"{doing}: {error}")
    except ChildError as error:
        raise WorkloadDiedError(entry, doing, error) from error
    except (KeyError, TypeError, ValueError) as error:  # a kernel may write answers of its own to the channel
        garbage = ChildGarbageError(f"an answer is not what was asked for: {type(error).__name__} {error}")
        raise WorkloadDiedError(entry, doing, garbage) from error


class Crew:
    """Keeps one team ahead; the ledger says who is still worth preparing."""

    def __init__(
        self,
        subjects: Sequence[AnySubject],
        *,
        spawn: Spawn,
        device: Device,
        params: ProtocolParams,
        clock: Callable[[], float],
        workloads: tuple[str, ...],
        tier: str,
        code: CodeReader | None = None,
        identical: IdenticalCode = IdenticalCode.TIMED,
    ) -> None:
        self.ledger = Ledger()
        self._code = code
        self._identical = identical
        self._subjects = list(subjects)
        self._spawn = spawn
        self._device = device
        self._params = params
        self._clock = clock
        self._workloads = workloads
        self._tier = tier
        self._built = False
        self._teams = 0
        self._executor = ThreadPoolExecutor(max_workers=1) if device.prepares_beside else None
        self._next: Future[Team | None] | None = None

    def take_team(self, process: int) -> Team | None:
        """A team whose kernels are proven right, for the replicate numbered `process`; None when nothing is left."""
        ahead, self._next = self._next, None
        team = ahead.result() if ahead else self._bring_up()
        if team is not None:
            team.process = process
        return team

    def prepare_next(self) -> None:
        """Start on the next team beside the present one, where the device has room."""
        if self._executor is not None and self._next is None:
            self._next = self._executor.submit(self._bring_up)

    def close(self) -> None:
        """End a team that was prepared in vain."""
        if self._next is not None:
            team = self._next.result()
            if team is not None:
                team.close()
        if self._executor is not None:
            self._executor.shutdown()

    def _bring_up(self) -> Team | None:
        for _ in range(ATTEMPTS_MAX):
            subjects = [s for s in self._subjects if s.sha not in self.ledger.broken]
            if not subjects:
                return None
            team = Team(
                subjects,
                process=self._teams,
                spawn=self._spawn,
                device=self._device,
                params=self._params,
                clock=self._clock,
                code=self._code,
            )
            try:
                if self._bring(team):
                    self._teams += 1
                    return team
                team.close()
                return None  # noqa: TRY300 - both answers belong together
            except SubjectBrokenError as broken:
                self.ledger.broken[broken.sha] = broken.failure
            except WorkloadDiedError as died:
                died.record()
            except BaseException:
                team.close()
                raise
            team.close()
        raise DeviceError("children keep dying: no process could be brought to measure")

    def _bring(self, team: Team) -> bool:
        for subject in team.subjects:
            if subject.sha not in self.ledger.entries:
                self.ledger.entries[subject.sha] = self._discover(team, subject)
        if not self._built:
            self._build(team)
            self._built = True
        if self._identical is IdenticalCode.SETTLED and len(team.subjects) == len(self._subjects) > 1:
            settle(self.ledger, team)
            self._identical = IdenticalCode.TIMED
        entries = self.ledger.measurable()
        for entry in entries:
            with blaming(entry, "preparing"):
                reply = team.prepare(entry.sha, entry.key, proven_hash=entry.output_hash)
                if entry.output_hash is None:
                    entry.output_hash = reply.get("output_hash")
                    entry.static.update({f"fact.{k}": v for k, v in reply.get("facts", {}).items()})
        return any(e.failed is None for e in entries)

    def _discover(self, team: Team, subject: AnySubject) -> dict[str, Entry]:
        found = {d["workload"]: d for d in team.discover(subject.sha, "weekly" if self._workloads else self._tier)}
        wanted = self._workloads or tuple(found)
        entries = {key: Entry(subject.sha, found[key]) for key in wanted if key in found}
        if not entries:
            reason = f"the suite offers none of the workloads asked for ({', '.join(wanted[:5]) or self._tier})"
            raise SubjectBrokenError(subject.sha, RunFailure(FailureStage.DISCOVER, FailureKind.PERMANENT, reason))
        return entries

    def _build(self, team: Team) -> None:
        for subject in team.subjects:
            own = [e for e in self.ledger.entries[subject.sha].values() if e.failed is None]
            failed = team.build(subject.sha, tuple(e.key for e in own))
            for entry in own:
                if entry.key in failed:
                    entry.fail("build", f"{CANNOT_BUILD}{failed[entry.key]}")
            if own and all(e.key in failed for e in own):
                reason = next(iter(failed.values()))
                failure = RunFailure(FailureStage.BUILD, FailureKind.PERMANENT, reason.splitlines()[0], reason)
                raise SubjectBrokenError(subject.sha, failure)
