"""Where a child's kernels come from: a suite of a commit, or any module with `make(kernel, slow_pct)`.

Both answer the same few questions, so the child, the protocol and the comparison are one code for kernels inside and
outside a suite.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from runners.api import Cache, Launch
from runners.errors import BuildError, RunnerError
from runners.measure import honesty
from service.contract import FailureKind


class NotMeasurableError(RunnerError):
    """A workload that cannot be timed; `kind_name` is the status it earns (wrong_result, skipped, build, crashed)."""

    kind = FailureKind.PERMANENT

    def __init__(self, kind_name: str, reason: str) -> None:
        super().__init__(reason)
        self.kind_name = kind_name


@dataclass(slots=True)
class Prepared:
    """A kernel ready to be timed, with what its check found."""

    run: Callable[[], object]
    recheck: Callable[[int], str | None]  # fresh seed -> why the result is wrong, or None
    output_hash: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    launch_s: float = 0.0
    again: Callable[[], Callable[[], object]] | None = None  # another copy, with buffers of its own
    buffer_bytes: int = 0  # of the device's memory; 0 when that is not known
    cache: Cache = Cache.WARM
    plan: Any = None  # the stopwatch's own


class House(Protocol):
    """A source of kernels."""

    def listing(self, tier: str, device: str) -> list[dict[str, Any]]:
        """Describe the workloads, one JSON object each, keyed by `workload`."""

    def build(self, keys: tuple[str, ...]) -> dict[str, str]:
        """Compile what the workloads need; return why each that cannot be built failed."""

    def prepare(self, key: str, *, seed: int, proven_hash: str | None) -> Prepared:
        """Make inputs from `seed`, prove the result right, and return what is timed.

        `proven_hash` is that of an output for the same seed that agreed with the reference before.
        """

    def static(self, key: str) -> dict[str, Any]:
        """Machine-code facts of the workload: deterministic, no timing."""


class ModuleHouse:
    """Any Python file that defines `make(kernel, slow_pct) -> callable`; it vouches for its own results."""

    def __init__(self, path: Path, kernel: str, slow_pct: float) -> None:
        spec = importlib.util.spec_from_file_location("measured_module", path)
        if spec is None or spec.loader is None:
            raise NotMeasurableError("discover", f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._make: Callable[[str, float], Callable[[], object]] = module.make
        self._kernel = kernel
        self._slow_pct = slow_pct

    def listing(self, tier: str, device: str) -> list[dict[str, Any]]:
        """The one kernel."""
        return [
            {
                "workload": self._kernel,
                "benchmark": self._kernel,
                "family": "module",
                "version": 1,
                "problem": self._kernel,
                "device": device,
                "axes": {},
                "control": False,
                "flops": 0.0,
                "bytes": 0.0,
                "threads": 1,
                "tier": tier,
            }
        ]

    def build(self, keys: tuple[str, ...]) -> dict[str, str]:
        """Nothing to build."""
        del keys
        return {}

    def prepare(self, key: str, *, seed: int, proven_hash: str | None) -> Prepared:
        """Make the callable."""
        del key, seed, proven_hash
        return Prepared(run=self._make(self._kernel, self._slow_pct), recheck=lambda _seed: None)

    def static(self, key: str) -> dict[str, Any]:
        """Nothing is known of its machine code."""
        del key
        return {}


class SuiteHouse:
    """The suite of a commit, imported from its worktree."""

    def __init__(self, suite_dir: Path, build_dir: Path) -> None:
        from runners.measure.discover import load_suite

        self._suite = load_suite(suite_dir)
        self._build_dir = build_dir

    def listing(self, tier: str, device: str) -> list[dict[str, Any]]:
        """Describe every workload of `device` in `tier` and below."""
        return [self._describe(bound) for bound in self._suite.workloads(tier, device)]

    def _describe(self, bound: Any) -> dict[str, Any]:
        implementation, problem = bound.implementation, bound.implementation.problem
        return {
            "workload": bound.key,
            "benchmark": implementation.name,
            "family": problem.family,
            "version": implementation.version,
            "problem": problem.name,
            "device": implementation.device,
            "axes": dict(bound.axes),
            "control": implementation.control,
            "flops": float(problem.flops(bound.axes)),
            "bytes": float(problem.bytes(bound.axes, implementation.dtype)),
            "threads": implementation.threads,
            "tier": bound.workload.tier,
            "cache": bound.cache.value,
        }

    def build(self, keys: tuple[str, ...]) -> dict[str, str]:
        """Compile each implementation once; the library's name is its content, so this is mostly a look-up."""
        from runners.measure.context import context_for

        failed: dict[str, str] = {}
        outcome: dict[str, str | None] = {}
        for key in keys:
            implementation = self._suite.find(key).implementation
            if implementation.name not in outcome:
                outcome[implementation.name] = None
                if implementation.sources and implementation.device == "cpu":
                    try:
                        context_for(self._suite, implementation, self._build_dir).library_path()
                    except BuildError as error:
                        outcome[implementation.name] = str(error)
            reason = outcome[implementation.name]
            if reason is not None:
                failed[key] = reason
        return failed

    def prepare(self, key: str, *, seed: int, proven_hash: str | None) -> Prepared:
        """Correct before fast: the first output is checked against the reference before anything is timed."""
        from runners.measure import correctness
        from runners.measure.context import context_for, prepare_launch
        from runners.measure.discover import missing_requirement

        bound = self._suite.find(key)
        implementation, axes = bound.implementation, bound.axes
        missing = missing_requirement(implementation)
        if missing is not None:
            raise NotMeasurableError("skipped", missing)
        context = context_for(self._suite, implementation, self._build_dir)
        inputs = correctness.make_inputs(implementation, axes, seed=seed)
        held_before = _held_bytes(implementation.device)
        launch = prepare_launch(implementation, context, inputs, axes)
        buffer_bytes = _held_bytes(implementation.device) - held_before
        launch.run()
        output = launch.output()
        output_hash = correctness.output_hash(output)
        if output_hash != proven_hash:
            expected = correctness.reference(implementation, inputs, axes)
            wrong = correctness.check(implementation, axes, output, expected)
            if wrong is not None:
                raise NotMeasurableError("wrong_result", wrong)

        def recheck(fresh_seed: int) -> str | None:
            fresh = correctness.make_inputs(implementation, axes, seed=fresh_seed)
            expected = correctness.reference(implementation, fresh, axes)

            def wrong_in(output: Any) -> str | None:
                return correctness.check(implementation, axes, output, expected)

            if launch.load is None:
                again = prepare_launch(implementation, context, fresh, axes)
                again.run()
                return wrong_in(again.output())
            return _recheck_loaded(launch, partial(launch.load, fresh), wrong_in)

        def another() -> Callable[[], object]:
            return prepare_launch(implementation, context, inputs, axes).run

        return Prepared(
            launch.run,
            recheck,
            output_hash=output_hash,
            facts={**_code_facts(implementation), **launch.facts},
            again=another if bound.cache is Cache.COLD else None,  # it keeps the inputs, which may be large
            buffer_bytes=buffer_bytes,
            cache=bound.cache,
        )

    def static(self, key: str) -> dict[str, Any]:
        """Object-code facts, when the implementation has sources that are built here."""
        from runners.measure.static import describe_code

        bound = self._suite.find(key)
        return describe_code(self._suite, bound.implementation, self._build_dir)


def _recheck_loaded(launch: Launch, load: Callable[[], None], wrong_in: Callable[[Any], str | None]) -> str | None:
    """Load other inputs into a prepared kernel and launch it; why its answer, or the way to it, is wrong."""
    before = honesty.answers_without_launch(launch)
    tells = before is not None and wrong_in(before) is not None  # else any inputs have the same answer
    load()
    early = honesty.answers_without_launch(launch)
    launch.run()
    output = launch.output()
    wrong = wrong_in(output)
    if wrong is not None:
        return wrong
    if tells and honesty.unchanged(early, output):
        return honesty.READY
    return honesty.IDLE if honesty.leaves_spoilt(launch, stale=early) else None


def _held_bytes(device: str) -> int:
    """What this process holds of a GPU's memory through CuPy: the growth over a preparation is a kernel's buffers."""
    if device != "cuda":
        return 0
    import cupy

    return int(cupy.get_default_memory_pool().used_bytes())


def _code_facts(implementation: Any) -> dict[str, str]:
    """What CuPy makes of CUDA sources here: a cubin, or PTX for the driver when NVRTC does not know the device."""
    if implementation.device != "cuda" or not implementation.sources:
        return {}
    import cupy

    newest = max(map(int, cupy.cuda.nvrtc.getSupportedArchs()))
    return {"backend": "cuda", "code": "cubin" if int(cupy.cuda.Device().compute_capability) <= newest else "ptx"}
