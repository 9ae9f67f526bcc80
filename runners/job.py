"""One order, from checkout to figures: everything between a claim and its report that touches the commit.

Steps: 1 check every commit out; 2 read what the repository says of itself; 3 run its build command, locked in;
4 measure all commits together on the device; 5 check that the installed harness is still the same. What goes wrong with
a commit is recorded in the report with its stage and kind; only a bug of ours raises.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from runners import repository, sandbox
from runners.canary_run import measure_canaries
from runners.checkout import CheckoutError, Mirror, Worktree
from runners.device.base import Device
from runners.errors import BuildError, ChildError, DeviceError, DiscoveryError, SandboxError
from runners.harness import HarnessChangedError, harness_hash
from runners.measure.cuda_code import CudaCode
from runners.measure.epoch import HARNESS_EPOCH
from runners.measure.identical import IdenticalCode
from runners.measure.session import HoldLostError, SessionResult, measure_commits
from runners.measure.team import Subject, Team
from runners.sandbox import Access, Child, Limits
from runners.survey import reports_of_measured, survey_cuda
from runners.twins import merged, merged_failures, twin_of
from service.contract import (
    CONTRACT_VERSION,
    CommitFailure,
    EnvironmentReport,
    FailureKind,
    FailureStage,
    RunFailure,
    RunOrder,
    RunReason,
    RunReport,
    StaticReport,
)

BUILD_LIMIT_S = 600.0
LOG_CHARS = 8000
QUESTIONS = frozenset({RunReason.CONFIRM, RunReason.BISECTION})  # between commits: identical code is the answer
INTERLEAVED = QUESTIONS | {RunReason.VERIFY, RunReason.AA}  # the others make history points
CANARY_PAUSE_S = 0.5
_log = structlog.get_logger()

Progress = Callable[[str, int, int], bool]


@dataclass(slots=True)
class Workshop:
    """What a runner works with: its device, its folders, and the limits of what it runs."""

    device: Device
    cache_dir: Path
    limits: Limits = field(default_factory=Limits)
    device_files: tuple[Path, ...] = ()
    walls: dict[str, str] = field(default_factory=dict)  # what protected the last child

    def spawn(self, *, access: Access, limits: Limits, command: tuple[str, ...] = (), **more: object) -> Child:
        """Start a locked-in process and note which walls held."""
        extra = {name: value for name, value in more.items() if value is not None}
        child = sandbox.spawn(
            access=access,
            limits=limits,
            scratch_root=self.cache_dir / "scratch",
            command=command,
            **extra,  # type: ignore[arg-type]
        )
        self.walls = child.facts
        return child

    def spawn_compiler(self) -> Child:
        """Start the locked-in compiler of CUDA sources: it sees no commit and no device."""
        return sandbox.spawn(
            access=Access(),
            limits=replace(self.limits, address_space_bytes=None),
            scratch_root=self.cache_dir / "scratch",
            command=sandbox.COMPILER_COMMAND,
        )


class _TimeUpError(BuildError):
    """The run took longer than its repository allows."""


class Job:
    """Carries one order out."""

    def __init__(self, order: RunOrder, workshop: Workshop, progress: Progress) -> None:
        self._order = order
        self._workshop = workshop
        self._tell_service = progress
        self._mirror = Mirror(workshop.cache_dir, name=order.repository, clone_url=order.clone_url)
        self._limit_s = order.time_limit_s
        self._deadline_s = time.monotonic() + self._limit_s
        self._failures: dict[str, RunFailure] = {}
        self._started_at = time.time()
        self._static: tuple[StaticReport, ...] = ()
        self._static_missing: str | None = None
        self._code = CudaCode(
            cache_dir=workshop.cache_dir / "cuda_code", spawn=workshop.spawn_compiler, clock=time.monotonic
        )

    def carry_out(self) -> RunReport:
        """Measure, and report whatever became of it. Raises HoldLostError when the run was taken from us."""
        if self._order.reason is RunReason.CANARY:
            return self._measure_canaries()
        before = harness_hash()
        with ExitStack() as worktrees:
            worktrees.callback(self._code.close)
            subjects = self._prepare_all(worktrees)
            try:
                report = self._measure(subjects)
            finally:
                if harness_hash() != before:
                    raise HarnessChangedError("the installed harness was changed while a commit was measured")
        return report

    def _measure_canaries(self) -> RunReport:
        """Measure the machine alone: nothing of the commit is checked out, built or run."""
        device = self._workshop.device

        def spawn() -> Child:
            access = Access(devices=self._workshop.device_files)
            return self._workshop.spawn(access=access, limits=self._workshop.limits)

        try:
            found = measure_canaries(
                spawn=spawn,
                device=device,
                reference_s=self._order.protocol.canary_reference_s,
                progress=self._tell,
                clock=time.monotonic,
                pause=lambda: time.sleep(CANARY_PAUSE_S),
            )
        except (DeviceError, ChildError, SandboxError, _TimeUpError) as error:
            failure = RunFailure(FailureStage.DEVICE, error.kind, getattr(error, "reason", str(error)))
            return self._report(None, failure=failure)
        return replace(
            self._report(None, environment=found.environment),
            device_s=found.device_s,
            canary_wall_s=found.compute_s[0],
            canary_cpu_s=found.compute_s[1],
            memory_canary_wall_s=found.memory_s[0],
            memory_canary_cpu_s=found.memory_s[1],
            flags=found.flags,
        )

    def _prepare_all(self, worktrees: ExitStack) -> list[Subject]:
        subjects = []
        shas = (self._order.sha, *self._order.partner_shas)
        for done, sha in enumerate(dict.fromkeys(shas)):
            self._tell("checkout", done, len(shas))
            try:
                subjects.append(self._prepare(sha, worktrees))
            except CheckoutError as error:
                self._fail(sha, FailureStage.CHECKOUT, error.kind, str(error))
            except DiscoveryError as error:
                self._fail(sha, FailureStage.DISCOVER, error.kind, str(error))
            except BuildError as error:
                self._fail(sha, FailureStage.BUILD, error.kind, error.reason, error.log_tail)
            except ChildError as error:
                self._fail(sha, FailureStage.BUILD, error.kind, f"the build command: {error.reason}", error.log_tail)
            except SandboxError as error:
                self._fail(sha, FailureStage.BUILD, error.kind, str(error))
        return subjects

    def _prepare(self, sha: str, worktrees: ExitStack) -> Subject:
        worktree = worktrees.enter_context(self._mirror.worktree(sha, self._order.suite_path))
        settings = repository.settings_at(self._order, self._mirror.read_file(sha, "pyproject.toml"))
        key = repository.build_key(
            suite_tree=worktree.suite_tree,
            settings=settings,
            tree_of=lambda path: self._mirror.tree_of(sha, path),
        )
        build_dir = repository.build_dir(self._workshop.cache_dir / "builds" / self._mirror.slug, key)
        if settings.time_limit_s < self._limit_s:
            self._deadline_s -= self._limit_s - settings.time_limit_s
            self._limit_s = settings.time_limit_s
        if settings.build_command is not None:
            self._run_build_command(settings.build_command, worktree, build_dir)
        return Subject(sha=sha, suite_dir=worktree.suite_dir, build_dir=build_dir)

    def _run_build_command(self, command: str, worktree: Worktree, build_dir: Path) -> None:
        """Run the repository's own build, as locked in as its kernels; its products belong into the build folder."""
        self._tell("build", 0, 1)
        child = self._workshop.spawn(
            access=Access(write=(worktree.root, build_dir)),
            limits=replace(self._workshop.limits, address_space_bytes=None),
            command=("/bin/sh", "-c", command),
            working_dir=worktree.root,
            extra_environment={repository.BUILD_DIR_VARIABLE: str(build_dir)},
        )
        with child:
            code = child.finish(timeout_s=min(BUILD_LIMIT_S, max(1.0, self._deadline_s - time.monotonic())))
        if code != 0:
            raise BuildError(f"the build command ended with status {code}", child.log_tail)

    def _survey(self, subject: Subject) -> None:
        """Read the machine code of a history point's CUDA sources, after the device was let go; never fails the run."""
        if self._code.missing is not None:
            self._static_missing = self._code.missing
            return
        team = Team(
            [subject],
            process=0,
            spawn=self._spawn_child,
            device=self._workshop.device,
            params=self._order.protocol,
            clock=time.monotonic,
            code=self._code,
        )
        try:
            self._tell("static", 0, 1)
            self._static, self._static_missing = survey_cuda(team, subject.sha)
        except (SandboxError, _TimeUpError) as error:
            self._static_missing = str(error)
        finally:
            team.close()

    def _measure(self, subjects: list[Subject]) -> RunReport:
        if self._order.sha in self._failures:
            return self._report(None, failure=self._failures[self._order.sha])
        environment = self._workshop.device.environment(self._order.protocol.canary_reference_s)
        twins = [twin_of(subject) for subject in subjects] if self._order.reason is RunReason.AA else []
        try:
            found = measure_commits(
                [*subjects, *twins],
                spawn=self._spawn_child,
                device=self._workshop.device,
                params=self._order.protocol,
                workloads=self._order.workloads,
                tier=self._order.tier,
                progress=self._tell,
                code=self._code,
                identical=IdenticalCode.SETTLED if self._order.reason in QUESTIONS else IdenticalCode.TIMED,
                rng=random.Random(f"{self._order.run_id}:{self._order.attempt}:{self._order.protocol.seed}"),
                clock=time.monotonic,
            )
        except DeviceError as error:
            return self._report(None, failure=RunFailure(FailureStage.DEVICE, error.kind, str(error)))
        except SandboxError as error:
            return self._report(None, failure=RunFailure(FailureStage.MEASURE, error.kind, str(error)))
        except _TimeUpError as error:
            return self._report(None, failure=RunFailure(FailureStage.MEASURE, error.kind, error.reason))
        if self._order.reason is RunReason.AA:
            found = replace(
                found,
                measurements=merged(found.measurements, self._order.sha),
                commit_failures=merged_failures(found.commit_failures, self._order.sha),
            )
        for commit_failure in found.commit_failures:
            self._failures[commit_failure.sha] = commit_failure.failure
        if self._order.reason not in INTERLEAVED and self._order.sha not in self._failures:
            self._survey(next(subject for subject in subjects if subject.sha == self._order.sha))
        failure = None if found.measurements else self._failures.get(self._order.sha)
        return self._report(found, environment=environment, failure=failure)

    def _spawn_child(self, subject: Subject, _process: int) -> Child:
        workshop = self._workshop
        root = subject.suite_dir
        return workshop.spawn(
            access=Access(read=(root,), write=(subject.build_dir,), devices=workshop.device_files),
            limits=workshop.limits,
        )

    def _tell(self, stage: str, done: int, total: int) -> bool:
        """Pass progress on; ends the run when its time is up or it is no longer ours."""
        if time.monotonic() > self._deadline_s:
            raise _TimeUpError(f"the run took longer than its limit of {self._limit_s:.0f} s")
        if not self._tell_service(stage, done, total):
            raise HoldLostError("the run was taken from this runner")
        return True

    def _fail(self, sha: str, stage: FailureStage, kind: FailureKind, reason: str, log_tail: str = "") -> None:
        self._failures[sha] = RunFailure(stage, kind, reason, log_tail[-LOG_CHARS:])
        _log.warning("commit failed", commit=sha[:12], stage=str(stage), kind=str(kind), reason=reason)

    def _report(
        self,
        found: SessionResult | None,
        *,
        environment: EnvironmentReport | None = None,
        failure: RunFailure | None = None,
    ) -> RunReport:
        if environment is not None:
            walls = sandbox.protection_facts(self._workshop.walls)
            environment = replace(environment, facts={**environment.facts, **walls})
        return RunReport(
            contract_version=CONTRACT_VERSION,
            run_id=self._order.run_id,
            attempt=self._order.attempt,
            lease_token=self._order.lease_token,
            started_at=self._started_at,
            finished_at=time.time(),
            device_s=found.device_s if found else 0.0,
            harness_epoch=HARNESS_EPOCH,
            environment=environment,
            measurements=found.measurements if found else (),
            commit_failures=tuple(CommitFailure(sha, failure) for sha, failure in self._failures.items()),
            failure=failure,
            canary_wall_s=found.canary_wall_s if found else None,
            canary_cpu_s=found.canary_cpu_s if found else None,
            memory_canary_wall_s=found.copy_canary_wall_s if found else None,
            memory_canary_cpu_s=found.copy_canary_cpu_s if found else None,
            flags=found.flags if found else (),
            static=self._all_static(found),
            static_missing=self._static_missing,
            device_health=self._workshop.device.health(),
        )

    def _all_static(self, found: SessionResult | None) -> tuple[StaticReport, ...]:
        measured = reports_of_measured(found.measurements if found else ())
        every = {(one.sha, one.benchmark, one.target): one for one in (*measured, *self._static)}
        return tuple(every.values())
