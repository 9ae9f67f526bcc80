"""What the harness offers an implementation while it prepares (see `runners.api.Context`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runners.api import Axes, Implementation, Inputs, Launch
from runners.measure.discover import Suite
from runners.measure.library import compile_library, load_library


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteContext:
    """The context of one implementation of a suite; libraries are built under `build_dir`."""

    implementation: Implementation
    suite_dir: Path
    source_dir: Path
    build_dir: Path
    arch: str = "native"

    @property
    def threads(self) -> int:
        """Threads that the workload may use."""
        return self.implementation.threads

    def library_path(self) -> Path:
        """The compiled C sources of this implementation."""
        sources = [self.source_dir / source for source in self.implementation.sources]
        return compile_library(sources, self.implementation.flags, self.build_dir, arch=self.arch)

    def library(self) -> Any:
        """The C sources of this implementation, compiled and loaded through ctypes."""
        return load_library(self.library_path())

    def module(self) -> Any:
        """The CUDA source of this implementation as a cupy.RawModule."""
        import cupy

        from runners.device.cuda.nvrtc import include_options

        code = "\n".join((self.source_dir / source).read_text() for source in self.implementation.sources)
        return cupy.RawModule(code=code, options=("-std=c++17", *include_options(), *self.implementation.flags))


def context_for(suite: Suite, implementation: Implementation, build_dir: Path, *, arch: str = "native") -> SuiteContext:
    """The context for one implementation of `suite`."""
    return SuiteContext(
        implementation=implementation,
        suite_dir=suite.root,
        source_dir=suite.files[implementation.name].parent,
        build_dir=build_dir,
        arch=arch,
    )


def prepare_launch(implementation: Implementation, context: SuiteContext, inputs: Inputs, axes: Axes) -> Launch:
    """What the author's `prepare` returns; TypeError with a sentence when that is no Launch."""
    launch: object = implementation.prepare(context, inputs, axes)
    if not isinstance(launch, Launch):
        raise TypeError(f"prepare of {implementation.name} must return a Launch, and returned {type(launch).__name__}")
    return launch
