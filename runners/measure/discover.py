"""Find the problems, implementations and workloads of a suite.

A suite is a folder of a commit's worktree. Its modules are imported under a private package name, so that two suites
(or a suite and the installed one) never mix, and nothing is written beside the sources. Everything that an author can
get wrong is reported as one sentence that names the file.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from runners.api import Axes, Cache, Implementation, Problem, Workload, workload_key
from runners.errors import DiscoveryError

TIERS = ("core", "nightly", "weekly")
DEVICES = ("cpu", "cuda")
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_serial = itertools.count(1)


@dataclass(frozen=True, slots=True)
class BoundWorkload:
    """One implementation at concrete axis values."""

    implementation: Implementation
    workload: Workload

    @property
    def axes(self) -> Axes:
        """The axis values."""
        return self.workload.axes

    @property
    def key(self) -> str:
        """The stable name, e.g. `gemm_f32[k=512,m=512,n=512]`."""
        return workload_key(self.implementation.name, self.workload.axes, self.cache)

    @property
    def cache(self) -> Cache:
        """The state of the cache that the workload asks for."""
        return Cache(self.workload.cache)


@dataclass(frozen=True, slots=True)
class Suite:
    """All that a suite offers; `files` maps an implementation's name to its file."""

    root: Path
    problems: tuple[Problem, ...]
    implementations: tuple[Implementation, ...]
    files: Mapping[str, Path]

    def workloads(self, tier: str = "core", device: str = "cpu") -> tuple[BoundWorkload, ...]:
        """Every workload of `device` in `tier` and the tiers below it, in a stable order."""
        if tier not in TIERS:
            raise DiscoveryError(f"there is no tier {tier!r}: choose one of {', '.join(TIERS)}")
        allowed = TIERS[: TIERS.index(tier) + 1]
        return tuple(
            BoundWorkload(implementation, workload)
            for implementation in self.implementations
            if implementation.device == device
            for workload in implementation.problem.workloads
            if workload.device == device
            and workload.tier in allowed
            and (implementation.supports is None or implementation.supports(workload.axes))
        )

    def find(self, key: str) -> BoundWorkload:
        """The workload named `key`, on whatever device and tier."""
        for device in DEVICES:
            for bound in self.workloads(TIERS[-1], device):
                if bound.key == key:
                    return bound
        raise DiscoveryError(f"there is no workload {key!r} in {self.root}")


def load_suite(suite_dir: Path) -> Suite:
    """Import every module of `suite_dir` (files named `_*.py` only when others import them) and collect the marks."""
    root = suite_dir.resolve()
    if not root.is_dir():
        raise DiscoveryError(f"there is no suite folder {suite_dir}")
    package = f"_kernelwatch_suite_{next(_serial)}"
    problems: dict[str, tuple[Problem, Path]] = {}
    implementations: dict[str, tuple[Implementation, Path]] = {}
    with _no_bytecode():
        _mount(package, root)
        for path in _module_files(root):
            module = _import(package, root, path)
            for value in list(vars(module).values()):
                found = getattr(value, "__kernelwatch__", None)
                if isinstance(value, Problem):
                    _add_problem(problems, value, path.relative_to(root))
                elif isinstance(found, Implementation) and found.module_name == module.__name__:
                    _add_implementation(implementations, found, path)
                    _add_problem(problems, found.problem, path.relative_to(root))
    if not implementations:
        raise DiscoveryError(f"{suite_dir} holds no implementation: mark one with @implementation from runners.api")
    for problem, path in problems.values():
        _check_problem(problem, path)
    return Suite(
        root=root,
        problems=tuple(problem for problem, _ in problems.values()),
        implementations=tuple(found for found, _ in implementations.values()),
        files={name: path for name, (_, path) in implementations.items()},
    )


def missing_requirement(implementation: Implementation) -> str | None:
    """Why this implementation must be `skipped` here (a library it needs is not installed), or None."""
    for name in implementation.requires:
        try:
            found = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            return f"{name} is not installed"
    return None


@contextmanager
def _no_bytecode() -> Iterator[None]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


def _mount(package: str, root: Path) -> None:
    module = ModuleType(package)
    module.__path__ = [str(root)]
    sys.modules[package] = module


def _module_files(root: Path) -> list[Path]:
    def hidden(path: Path) -> bool:
        return any(part.startswith((".", "_")) for part in path.relative_to(root).parts)

    return sorted(path for path in root.rglob("*.py") if not hidden(path))


def _import(package: str, root: Path, path: Path) -> ModuleType:
    relative = path.relative_to(root)
    name = ".".join((package, *relative.with_suffix("").parts))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DiscoveryError(
            f"{relative}: imports {error.name}, which is not installed here; import optional libraries inside the "
            f"prepare function and name them in requires=(...)"
        ) from error
    except TypeError as error:
        missing = re.search(r"missing \d+ required keyword-only arguments?: (.*)", str(error))
        what = f"leaves out {missing.group(1)}" if missing else f"cannot be imported: {error}"
        raise DiscoveryError(f"{relative}: {what}") from error
    except (Exception, SystemExit) as error:
        raise DiscoveryError(f"{relative}: cannot be imported: {type(error).__name__}: {error}") from error


def _add_problem(problems: dict[str, tuple[Problem, Path]], problem: Problem, path: Path) -> None:
    known = problems.setdefault(problem.name, (problem, path))
    if known[0] is not problem:
        raise DiscoveryError(f"{path}: the problem {problem.name!r} is already defined in {known[1]}")


def _add_implementation(
    implementations: dict[str, tuple[Implementation, Path]], found: Implementation, path: Path
) -> None:
    _check_name("implementation", found.name, path)
    if found.device not in DEVICES:
        raise DiscoveryError(f"{path}: {found.name} names the device {found.device!r}: use {' or '.join(DEVICES)}")
    for source in found.sources:
        if not (path.parent / source).is_file():
            raise DiscoveryError(f"{path}: {found.name} names the source {source!r}, which is not beside it")
    known = implementations.setdefault(found.name, (found, path))
    if known[0] is not found:
        raise DiscoveryError(f"{path}: the implementation {found.name!r} is already defined in {known[1]}")


def _check_name(kind: str, name: str, path: Path) -> None:
    if not NAME.match(name):
        raise DiscoveryError(f"{path}: the {kind} name {name!r} must be lower-case letters, digits and underscores")


def _check_problem(problem: Problem, path: Path) -> None:
    _check_name("problem", problem.name, path)
    _check_name("family", problem.family, path)
    for part in ("inputs", "reference", "flops", "bytes", "tolerance"):
        if not callable(getattr(problem, part)):
            raise DiscoveryError(f"{path}: the problem {problem.name!r} has no {part} function")
    seen: set[tuple[str, str]] = set()
    for workload in problem.workloads:
        _check_axes(problem, workload, path)
        identity = (workload.device, workload_key(problem.name, workload.axes, workload.cache))
        if identity in seen:
            raise DiscoveryError(f"{path}: the workload {identity[1]} is listed twice for {workload.device}")
        seen.add(identity)


def _check_axes(problem: Problem, workload: Workload, path: Path) -> None:
    where = f"{path}: a workload of {problem.name!r}"
    missing, extra = set(problem.axes) - set(workload.axes), set(workload.axes) - set(problem.axes)
    if missing or extra:
        wrong = [f"lacks the axis {name}" for name in sorted(missing)]
        wrong += [f"has an unknown axis {name}" for name in sorted(extra)]
        raise DiscoveryError(f"{where} {' and '.join(wrong)} (axes: {', '.join(problem.axes)})")
    for name, value in workload.axes.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise DiscoveryError(f"{where} has {name}={value!r}: an axis value is an int, a float or a str")
        if isinstance(value, str) and not re.fullmatch(r"[\w.+-]+", value):
            raise DiscoveryError(f"{where} has {name}={value!r}: a str value is letters, digits and ._+-")
    if workload.tier not in TIERS:
        raise DiscoveryError(f"{where} is in the tier {workload.tier!r}: use {', '.join(TIERS)}")
    if workload.device not in DEVICES:
        raise DiscoveryError(f"{where} is for the device {workload.device!r}: use {' or '.join(DEVICES)}")
    if workload.cache not in set(Cache):
        raise DiscoveryError(f"{where} asks for the cache {workload.cache!r}: use {' or '.join(Cache)}")
    if workload.cache == Cache.COLD and workload.device != "cuda":
        raise DiscoveryError(f"{where} asks for a cold cache on {workload.device!r}: that is measured on cuda only")
