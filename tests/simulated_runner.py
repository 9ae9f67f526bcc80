"""A simulated device: answers run orders with reports whose true speeds the test knows.

Named simulated because it stands where a device and its kernels would be; everything it reports goes through the real
contract, store and use cases. Noise is per process (between-process sd) and per launch, times a machine that drifts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from service.contract import (
    CONTRACT_VERSION,
    CommitFailure,
    DeviceHealth,
    EnvironmentReport,
    FailureKind,
    FailureStage,
    MeasurementReport,
    MeasurementStatus,
    RunFailure,
    RunOrder,
    RunReason,
    RunReport,
    SampleBlock,
)

CANARY_S = 1e-3
WORKLOADS = {
    "gemm_f32[k=384,m=384,n=384]": ("gemm_f32", "gemm", 1.0e-3),
    "gemm_f32[k=512,m=512,n=512]": ("gemm_f32", "gemm", 2.4e-3),
    "gemm_f32[k=255,m=129,n=513]": ("gemm_f32", "gemm", 0.4e-3),
    "flash_f32[d=64,h=4,s=512]": ("flash_f32", "attention", 1.9e-3),
    "flash_f32[d=64,h=4,s=777]": ("flash_f32", "attention", 4.1e-3),
    "moe_f32[e=8,h=256,i=512,t=64]": ("moe_f32", "moe", 3.0e-3),
    "gemm_f32_openblas[k=384,m=384,n=384]": ("gemm_f32_openblas", "gemm", 0.95e-3),
    "gemm_f32_openblas[k=512,m=512,n=512]": ("gemm_f32_openblas", "gemm", 2.3e-3),
}


@dataclass
class SimulatedRunner:
    """Speeds by commit: `steps[sha]` maps a family to a factor that holds from that commit on."""

    line: Sequence[str]  # first-parent shas, oldest first
    steps: Mapping[str, Mapping[str, float]]
    seed: int = 0
    broken: frozenset[str] = frozenset()
    wrong: Mapping[str, str] = field(default_factory=dict)  # sha -> family with a wrong result
    process_sd: float = 0.008
    launch_sd: float = 0.02
    drift_sd: float = 0.01
    machine_factor: float = 1.0
    comparable_key: str = "cpu:simulated"
    workloads: Mapping[str, tuple[str, str, float]] = field(default_factory=lambda: WORKLOADS)
    host_factor: Mapping[str, float] = field(default_factory=dict)  # benchmark or family -> what the host does to it
    facts: Mapping[str, str] = field(default_factory=lambda: {"cpu": "simulated"})
    device: str = "simulated"
    version: int = 1
    version_from: tuple[int, int] | None = None  # (position, version): commits from there on hold that version
    harness_epoch: int = 1
    device_seed: int | None = None  # another noise than the story's seed makes
    settles: bool = False  # interleaved commits with identical code are not timed
    audits: bool = False  # all the same, each of them is
    reads_code: bool = False  # the recipe around the code is known as well
    untold: Mapping[str, float] = field(default_factory=dict)  # sha -> what the machine does to it behind its code
    device_health: DeviceHealth | None = None

    def __post_init__(self) -> None:
        self.timed = 0  # blocks
        self.rng = np.random.default_rng(self.seed if self.device_seed is None else [self.seed, self.device_seed])

    def factor(self, sha: str, family: str) -> float:
        """The true slowdown of a family at a commit, relative to the root."""
        here = self.line.index(sha)
        return math.prod(self.steps.get(earlier, {}).get(family, 1.0) for earlier in self.line[: here + 1])

    def report(self, order: RunOrder, *, now: float) -> RunReport:
        """Measure what the order asks for."""
        subjects = [order.sha, *order.partner_shas]
        built = [sha for sha in subjects if sha not in self.broken]
        failures = tuple(CommitFailure(sha=sha, failure=_build_failure()) for sha in subjects if sha in self.broken)
        keys = [key for key in order.workloads or self.workloads if key in self.workloads]
        processes = order.protocol.processes * (2 if order.reason is RunReason.AA else 1)
        if order.reason is RunReason.CANARY:
            keys = []
        drift = float(np.exp(self.rng.normal(0, self.drift_sd))) * self.machine_factor
        kernels = [key for key in keys if not self.workloads[key][0].endswith("openblas")]
        if kernels and all(self._twin(order.sha, key, order, built) for key in kernels):
            keys = kernels  # nothing is timed that a control could stand beside
        measurements = tuple(
            self._measure(sha, key, processes=processes, drift=drift, twin=self._twin(sha, key, order, built))
            for key in keys
            for sha in built
        )
        self.timed += sum(len(one.blocks) for one in measurements)
        return RunReport(
            contract_version=CONTRACT_VERSION,
            run_id=order.run_id,
            attempt=order.attempt,
            lease_token=order.lease_token,
            started_at=now,
            finished_at=now + 5,
            device_s=0.2 * len(measurements) * processes / 5,
            harness_epoch=self.harness_epoch,
            environment=EnvironmentReport(
                device=self.device,
                comparable_key=self.comparable_key,
                fingerprint=f"fp:{self.comparable_key}:{sorted(self.facts.items())}",
                facts=dict(self.facts),
            ),
            measurements=measurements,
            commit_failures=failures,
            failure=_build_failure() if not built and order.reason is not RunReason.CANARY else None,
            canary_wall_s=CANARY_S * drift,
            canary_cpu_s=CANARY_S * drift,
            device_health=self.device_health,
        )

    def _twin(self, sha: str, key: str, order: RunOrder, built: Sequence[str]) -> str | None:
        """The commit of an interleaved run that has the code of `sha`, where that settles it."""
        if not self.settles or self.audits or order.reason not in {RunReason.CONFIRM, RunReason.BISECTION}:
            return None
        benchmark, family, _ = self.workloads[key]
        same = [one for one in built if one != sha and self.factor(one, family) == self.factor(sha, family)]
        subject_settled = any(
            self.factor(one, family) == self.factor(order.sha, family) for one in built if one != order.sha
        )
        return same[0] if same and subject_settled and not benchmark.endswith("openblas") else None

    def _measure(
        self, sha: str, key: str, *, processes: int, drift: float, twin: str | None = None
    ) -> MeasurementReport:
        benchmark, family, base_s = self.workloads[key]
        control = benchmark.endswith("openblas")
        wrong = self.wrong.get(sha) == family and not control
        factor = self.factor(sha, benchmark if control else family)  # a commit may change the library as well
        speed = factor * self.host_factor.get(benchmark, 1.0 if control else self.host_factor.get(family, 1.0))
        speed *= 1.0 if control else self.untold.get(sha, 1.0)
        blocks = () if wrong or twin else tuple(self._blocks(base_s * speed, processes=processes, drift=drift))
        levels = [np.median(block.wall_s) / block.canary_wall_s for block in blocks]
        status = MeasurementStatus.WRONG_RESULT if wrong else MeasurementStatus.OK
        if twin is not None:
            status = MeasurementStatus.IDENTICAL
        value = float(np.median(levels)) * CANARY_S if blocks else None
        return MeasurementReport(
            sha=sha,
            benchmark=benchmark,
            family=family,
            version=self._version_at(sha),
            problem=family,
            device="cpu",
            workload=key,
            axes=dict(pair.split("=") for pair in key[key.index("[") + 1 : -1].split(",")),
            control=control,
            flops=1e9,
            bytes=1e6,
            status=status,
            error="3 of 9 elements are off" if wrong else None,
            identical_to=twin,
            static={"recipe_hash": "recipe"} if self.reads_code else {},
            value_s=value,
            half_width_s=value * 0.01 if value else None,
            clock="wall",
            blocks=blocks,
            code_hash=f"{family}:{factor}",
        )

    def _version_at(self, sha: str) -> int:
        position, version = self.version_from or (len(self.line), 0)
        return version if self.line.index(sha) >= position else self.version

    def _blocks(self, base_s: float, *, processes: int, drift: float):
        for process in range(processes):
            own = float(np.exp(self.rng.normal(0, self.process_sd)))
            for order in range(3):
                moment = drift * float(np.exp(self.rng.normal(0, 0.03)))
                samples = base_s * own * moment * np.exp(self.rng.normal(0, self.launch_sd, 7))
                yield SampleBlock(
                    process=process,
                    order=order,
                    wall_s=tuple(float(x) for x in samples),
                    cpu_s=tuple(float(x) for x in samples),
                    canary_wall_s=CANARY_S * moment,
                    canary_cpu_s=CANARY_S * moment,
                )


def _build_failure() -> RunFailure:
    return RunFailure(stage=FailureStage.BUILD, kind=FailureKind.PERMANENT, reason="gemm.c:12: error: expected ';'")
