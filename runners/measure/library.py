"""Compile the C sources of an implementation into a shared library named by its content.

The name of the library is a hash of everything that decides its machine code: sources and the headers beside them,
flags, and the compiler with what it takes `-march=native` for. So a refactoring that leaves the sources alone costs
nothing, two commits never share a stale build, and concurrent builds are safe: each writes a private file and renames.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runners.errors import BuildError

BASE_FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fopenmp", "-Wall", "-g0")
PORTABLE_ARCH = "x86-64-v3"
COMPILE_LIMIT_S = 120.0
_MISSING_COMPILER = "there is no C compiler {compiler!r} on this machine: install gcc or set CC"
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def compile_library(
    sources: Sequence[Path], flags: Sequence[str], build_dir: Path, *, arch: str = "native", compiler: str | None = None
) -> Path:
    """Compile `sources` into `build_dir` unless that has been done, and return the library.

    `flags` come after the base flags, so an implementation may override them. `arch` is the value of `-march=`;
    a compiler that does not know it builds for x86-64-v3.
    """
    compiler = compiler or os.environ.get("CC") or "gcc"
    target = _target(compiler, arch)
    command = [*BASE_FLAGS, *([f"-march={target[0]}"] if target[0] else []), *flags]
    library = build_dir / f"{sources[0].stem}-{_content_key(sources, command, target[1])}.so"
    if library.exists():
        return library
    build_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build_dir, prefix=".build-") as scratch:
        built = Path(scratch) / library.name
        _run([compiler, *command, "-o", str(built), *(str(source) for source in sources), "-lm"])
        built.replace(library)
    return library


def load_library(path: Path) -> ctypes.CDLL:
    """Load a compiled library; its functions are declared by the implementation."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the library {path.name} cannot be loaded: {error}") from error


def toolchain_words(arch: str = "native", *, compiler: str | None = None) -> str:
    """The compiler and what it builds for here, in words that differ whenever its code may."""
    candidate, resolved = _target(compiler or os.environ.get("CC") or "gcc", arch)
    digest = hashlib.sha256(resolved.encode()).hexdigest()[:8]
    return f"{resolved.partition(' /')[0]} -march={candidate} {digest}"


def _content_key(sources: Sequence[Path], command: Sequence[str], target: str) -> str:
    digest = hashlib.sha256()
    for text in (target, *command):
        digest.update(text.encode() + b"\0")
    for path in _with_headers(sources):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:20]


def _with_headers(sources: Sequence[Path]) -> list[Path]:
    """The sources and every file that they include by a quoted name, followed to the end."""
    found: dict[Path, None] = {}
    waiting = [source.resolve() for source in sources]
    while waiting:
        path = waiting.pop(0)
        if path in found:
            continue
        if not path.is_file():
            raise BuildError(f"the source {path.name} does not exist")
        found[path] = None
        names = _INCLUDE.findall(path.read_text(errors="replace"))
        waiting += [header.resolve() for name in names if (header := path.parent / name).is_file()]
    return list(found)


@functools.lru_cache(maxsize=8)
def _target(compiler: str, arch: str) -> tuple[str, str]:
    """(value for -march or "", words that identify compiler and processor)."""
    version = _run([compiler, "--version"]).splitlines()[0]
    for candidate in (arch, PORTABLE_ARCH, ""):
        option = [f"-march={candidate}"] if candidate else []
        try:
            # -v prints the resolved options, so `native` on two processors gives two keys.
            resolved = _run([compiler, *option, "-v", "-E", "-x", "c", "/dev/null"])
        except BuildError:
            continue
        return candidate, version + "".join(line for line in resolved.splitlines() if "cc1" in line)
    raise BuildError(f"{compiler} compiles nothing on this machine")


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=COMPILE_LIMIT_S, check=False
        )
    except FileNotFoundError as error:
        raise BuildError(_MISSING_COMPILER.format(compiler=command[0])) from error
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"{command[0]} did not finish within {COMPILE_LIMIT_S:.0f} s") from error
    if done.returncode != 0:
        words = done.stdout[-4000:]
        raise BuildError(f"{command[0]} failed with status {done.returncode}:\n{words}", log_tail=words)
    return done.stdout
