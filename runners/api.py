"""What a kernel author imports: problems, implementations, and nothing else.

A *problem* says what is computed: axes, seeded inputs, a reference, tolerances, FLOPs and compulsory bytes. An
*implementation* is one small file with one decorator that says how. The measuring code is elsewhere and fixed;
this module is pure, and it only ever grows, because bisection imports suites that are years old.

    from runners.api import Context, Launch, implementation

    @implementation("gemm_f32", problem=GEMM, device="cpu", dtype="f32", sources=("gemm_f32.c",))
    def prepare(ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
        ...
        return Launch(run=call, output=lambda: c)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import numpy as np

API_VERSION = 1


class Cache(StrEnum):
    """In which state a kernel finds the cache when it is timed; each is a metric of its own."""

    WARM = "warm"  # as the launch before left it
    COLD = "cold"  # its buffers have been evicted


Axes = Mapping[str, int | float | str]
Inputs = Mapping[str, Any]
Array = Any  # numpy.ndarray on the CPU, cupy.ndarray on CUDA


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a result may be from its reference.

    An element passes when |x - ref| <= atol + rtol * |ref|; the whole passes when every element does (or all but
    `outlier_share` of them) and the global relative L2 error is at most `rel_l2`.
    """

    rtol: float
    atol: float
    rel_l2: float
    outlier_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """One problem at concrete axis values, in one tier (core, nightly or weekly), for one kind of device.

    The same axes may be listed twice, once for a warm cache and once for a cold one.
    """

    axes: Axes
    tier: str = "core"
    device: str = "cpu"
    label: str = ""
    cache: Cache = Cache.WARM


class InputRecipe(Protocol):
    """Makes the inputs of a problem from a seed that the kernel cannot know."""

    def __call__(self, axes: Axes, rng: np.random.Generator) -> Inputs:
        """Return the named input arrays (NumPy, on the host)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is computed: the same for every implementation of it."""

    name: str
    family: str
    axes: tuple[str, ...]
    inputs: InputRecipe
    reference: Callable[[Inputs, Axes], Array]
    flops: Callable[[Axes], float]
    bytes: Callable[[Axes, str], float]  # (axes, dtype) -> compulsory bytes
    tolerance: Callable[[str, Axes], Tolerance]  # (dtype, axes)
    workloads: tuple[Workload, ...]
    # For shapes whose whole reference would take minutes: some rows (of the output seen as rows of its last axis) and
    # their values in float64. It gets the inputs as the kernel does, and widens what it takes.
    sample: Callable[[Inputs, Axes, np.random.Generator], tuple[Array, Array]] | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A prepared kernel: `run` is what is timed, `output` reads the result, `facts` names what really ran.

    `load` (optional) copies fresh inputs of the same shapes into the prepared buffers, so that correctness can be
    checked again on data that was not known when the kernel was prepared.
    """

    run: Callable[[], object]
    output: Callable[[], Array]
    load: Callable[[Inputs], None] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


class Context(Protocol):
    """What the harness offers an implementation while it prepares."""

    @property
    def suite_dir(self) -> Path:
        """The folder of the suite in this commit's worktree."""

    @property
    def source_dir(self) -> Path:
        """The folder of the implementation's own file."""

    @property
    def build_dir(self) -> Path:
        """The folder that the repository's own build command fills; outside the worktree, one for each build."""

    @property
    def threads(self) -> int:
        """Threads that the workload may use (1 unless it says otherwise)."""

    def library(self) -> Any:
        """The C sources of this implementation, compiled and loaded through ctypes (CPU)."""

    def module(self) -> Any:
        """The CUDA source of this implementation as a cupy.RawModule (CUDA)."""


class Prepare(Protocol):
    """The decorated function: allocate, convert, bind; everything that must not be timed."""

    def __call__(self, ctx: Context, inputs: Inputs, axes: Axes) -> Launch:
        """Return the launch that will be checked and timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """How a problem is computed: one file, one device, one dtype."""

    name: str
    problem: Problem
    device: str
    dtype: str
    prepare: Prepare
    module_name: str
    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    version: int = 1
    control: bool = False
    threads: int = 1
    requires: tuple[str, ...] = ()  # import names that must be there, else the workload is `skipped`
    supports: Callable[[Axes], bool] | None = None


def implementation(
    name: str,
    *,
    problem: Problem,
    device: str,
    dtype: str,
    sources: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    version: int = 1,
    control: bool = False,
    threads: int = 1,
    requires: tuple[str, ...] = (),
    supports: Callable[[Axes], bool] | None = None,
) -> Callable[[Prepare], Prepare]:
    """Mark a prepare function as an implementation of `problem`; discovery finds it by this mark.

    `version` is the benchmark's version: bump it when what is measured changes meaning (a new series starts).
    `control=True` marks a vendor library timed in the same run, so that an alert can say which half moved.
    """

    def mark(prepare: Prepare) -> Prepare:
        found = Implementation(
            name=name,
            problem=problem,
            device=device,
            dtype=dtype,
            prepare=prepare,
            module_name=prepare.__module__,
            sources=sources,
            flags=flags,
            version=version,
            control=control,
            threads=threads,
            requires=requires,
            supports=supports,
        )
        prepare.__kernelwatch__ = found  # type: ignore[attr-defined]
        return prepare

    return mark


def workload_key(implementation_name: str, axes: Axes, cache: Cache = Cache.WARM) -> str:
    """The stable name of a workload: `gemm_f32[k=512,m=512,n=512]`, axes in alphabetical order, `@cold` after it."""
    inner = ",".join(f"{name}={axes[name]}" for name in sorted(axes))
    return f"{implementation_name}[{inner}]" + ("" if cache == Cache.WARM else f"@{cache}")
