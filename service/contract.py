"""The contract between service and runner: RunOrder goes down, RunReport comes up.

Plain frozen dataclasses, so that both sides share one vocabulary without sharing code. They travel as JSON;
pydantic validates them at both edges (`TypeAdapter(RunReport)`). Times are seconds (float), wall-clock moments
are POSIX seconds in UTC. A change that an older peer could not read bumps CONTRACT_VERSION.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

CONTRACT_VERSION = 2


class RunReason(StrEnum):
    """Why a run was ordered."""

    PUSH = "push"
    PULL_REQUEST = "pull_request"
    NIGHTLY = "nightly"
    BISECTION = "bisection"
    BACKFILL = "backfill"
    CONFIRM = "confirm"
    VERIFY = "verify"
    MANUAL = "manual"
    BRIDGE = "bridge"
    AA = "aa"  # a commit against itself, interleaved: its report's processes 2k and 2k+1 are the two sides
    CANARY = "canary"  # nothing of the commit: only the canaries


class MeasurementStatus(StrEnum):
    """What became of one workload in one run; only OK carries a figure."""

    OK = "ok"
    WRONG_RESULT = "wrong_result"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    TOO_NOISY = "too_noisy"
    SKIPPED = "skipped"
    IDENTICAL = "identical"  # the machine code and all around it equal those of `identical_to`: not timed


CANNOT_BUILD = "cannot build: "  # begins the error of a crashed workload whose sources do not compile


class Tier(StrEnum):
    """How often a workload is measured by itself: at every push, every night, every week."""

    CORE = "core"
    NIGHTLY = "nightly"
    WEEKLY = "weekly"


class FailureKind(StrEnum):
    """What a failure asks for: TRANSIENT is retried, PERMANENT recorded, BUG is ours."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    BUG = "bug"


class FailureStage(StrEnum):
    """Where a run failed."""

    CHECKOUT = "checkout"
    BUILD = "build"
    DISCOVER = "discover"
    MEASURE = "measure"
    DEVICE = "device"
    LEASE = "lease"


@dataclass(frozen=True, slots=True)
class ProtocolParams:
    """How long and how often to measure.

    `processes` fresh child processes (the replication unit), each timing `blocks` blocks per workload; a workload
    stops early when the half-width of its interval is below `target_half_width` (relative) or, after at least four
    processes, at `budget_s`.
    `canary_reference_s` is the pool's canary in seconds; without one each runner uses its own, measured once.
    """

    processes: int = 12
    blocks: int = 2
    block_s: float = 0.012
    target_half_width: float = 0.01
    budget_s: float = 9.0
    seed: int = 0
    canary_reference_s: float | None = None


@dataclass(frozen=True, slots=True)
class RunOrder:
    """One commit to measure on one pool; `partner_shas` are measured interleaved with it (ABBA) in the same run."""

    contract_version: int
    run_id: int
    attempt: int
    lease_token: str
    lease_s: float
    repository: str
    clone_url: str
    suite_path: str
    sha: str
    reason: RunReason
    partner_shas: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()  # workload keys; empty = the whole tier
    tier: str = "core"
    build_command: str | None = None
    watched_paths: tuple[str, ...] = ()
    time_limit_s: float = 600.0
    protocol: ProtocolParams = field(default_factory=ProtocolParams)


@dataclass(frozen=True, slots=True)
class EnvironmentReport:
    """Where a run was measured. `comparable_key` decides which series a point joins; `fingerprint` hashes all facts."""

    device: str  # model name, e.g. "cpu:AMD EPYC 9454" or "NVIDIA H200"
    comparable_key: str
    fingerprint: str
    facts: dict[str, str]


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """Raw launches of one workload of one commit between two canaries, in one process.

    `wall_s[i]` and `cpu_s[i]` are the same launch on two clocks; the canary figures are means of the frames before and
    after the block on the same two clocks. `order` is the block's position in its process.
    """

    process: int
    order: int
    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    canary_wall_s: float
    canary_cpu_s: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasurementReport:
    """All samples of one workload of one commit in one run, with the figure derived from them.

    `value_s` is the median over processes of kernel / canary on clock `clock`, times the pool's canary reference, in
    seconds; `half_width_s` is the half-width of its 95 % interval. Both are None unless status is OK.
    """

    sha: str
    benchmark: str  # implementation name, e.g. "gemm_f32"
    family: str
    version: int
    problem: str
    device: str  # "cpu" | "cuda"
    workload: str  # workload key, e.g. "gemm_f32[k=512,m=512,n=512]"
    axes: dict[str, int | float | str]
    control: bool  # a vendor library timed beside the kernels
    flops: float
    bytes: float
    status: MeasurementStatus
    error: str | None = None
    value_s: float | None = None
    half_width_s: float | None = None
    clock: str = "wall"  # "wall" | "cpu": the clock the figure was taken on
    blocks: tuple[SampleBlock, ...] = ()
    flags: tuple[str, ...] = ()
    code_hash: str | None = None  # machine code of the kernel, normalised
    output_hash: str | None = None
    static: dict[str, float | str] = field(default_factory=dict)
    metric: str = "time"
    direction: str = "lower"
    unit: str = "s"  # the unit of value_s; another unit starts another series
    tier: Tier = Tier.CORE
    identical_to: str | None = None  # the commit of the same run whose code this is; set with status IDENTICAL only


@dataclass(frozen=True, slots=True)
class StaticReport:
    """Exact facts of one implementation's machine code for one target: no timing, no noise, no device.

    `target` is "cpu" or a GPU architecture such as "sm_90a"; facts are compared within one toolchain only. Without
    machine code for the target `error` says why.
    """

    sha: str
    benchmark: str
    family: str
    version: int
    problem: str
    device: str  # "cpu" | "cuda"
    control: bool
    target: str
    toolchain: str
    code_hash: str | None
    recipe_hash: str | None
    facts: dict[str, float]
    error: str | None = None


class StaticFinding(StrEnum):
    """What a change of machine code asks for."""

    SAME = "same"
    LOOK_HERE = "look_here"
    WARNING = "warning"  # spills or stack went up


GROWTH_WARNS = ("stack_bytes", "spill_store_bytes", "spill_load_bytes")


def static_finding(
    before: Mapping[str, float], after: Mapping[str, float], *, code: tuple[str | None, str | None]
) -> StaticFinding:
    """What the change of one target's facts means; `code` are the two hashes of its machine code (None: none).

    A dynamically indexed array goes to the stack without counting as a spill, so both are looked at. Without machine
    code on one side there is nothing to call the same.
    """
    if None not in code and any(after.get(name, 0.0) > before.get(name, 0.0) for name in GROWTH_WARNS):
        return StaticFinding.WARNING
    same = code[0] is not None and code[0] == code[1] and dict(before) == dict(after)
    return StaticFinding.SAME if same else StaticFinding.LOOK_HERE


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why a run produced no measurements (or not all)."""

    stage: FailureStage
    kind: FailureKind
    reason: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True)
class CommitFailure:
    """A commit of the run (subject or partner) that could not be built or discovered."""

    sha: str
    failure: RunFailure


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """What the device says of its own health, as far as it says anything.

    `ecc_uncorrected` counts since the board was last reset; `xid_errors` are those since the report before.
    """

    ecc_uncorrected: int = 0
    xid_errors: int = 0
    slowest_nvml_call_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RunReport:
    """What a runner hands in for one attempt of one run. Handing it in twice changes nothing."""

    contract_version: int
    run_id: int
    attempt: int
    lease_token: str
    started_at: float
    finished_at: float
    device_s: float
    harness_epoch: int
    environment: EnvironmentReport | None
    measurements: tuple[MeasurementReport, ...] = ()
    commit_failures: tuple[CommitFailure, ...] = ()
    failure: RunFailure | None = None
    canary_wall_s: float | None = None
    canary_cpu_s: float | None = None
    flags: tuple[str, ...] = ()
    static: tuple[StaticReport, ...] = ()
    static_missing: str | None = None  # why machine code was not read, or not all of it
    memory_canary_wall_s: float | None = None
    memory_canary_cpu_s: float | None = None
    device_health: DeviceHealth | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A runner's sign of life while it holds a lease; the answer says whether it still does."""

    run_id: int
    lease_token: str
    stage: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class RunnerRegistration:
    """What a runner says of itself when it trades its one-time token for its own."""

    name: str
    pool: str
    device: str
    comparable_key: str
    facts: dict[str, str]
