"""What a repository says of itself at a commit: the `[tool.kernelwatch]` table of its pyproject.toml.

    [tool.kernelwatch]
    build_command = "make -C csrc"
    watched_paths = ["csrc", "CMakeLists.txt"]
    time_limit_s = 300

The table is read from the object store of the mirror, never from the worktree, where a link could lead elsewhere.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from runners.errors import DiscoveryError
from service.contract import RunOrder

BUILD_DIR_VARIABLE = "KERNELWATCH_BUILD_DIR"
BUILDS_KEPT = 64
MAX_TABLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """How one commit wants to be built and how long it may take."""

    build_command: str | None
    watched_paths: tuple[str, ...]
    time_limit_s: float


def settings_at(order: RunOrder, pyproject: str | None) -> RepositorySettings:
    """The order's settings, overridden by the commit's own; a commit may shorten the time limit, never lengthen it."""
    table = _table(pyproject)
    command = table.get("build_command", order.build_command)
    watched = table.get("watched_paths", list(order.watched_paths))
    limit_s = table.get("time_limit_s", order.time_limit_s)
    if command is not None and not isinstance(command, str):
        raise DiscoveryError("pyproject.toml: [tool.kernelwatch] build_command must be text")
    if not isinstance(watched, list) or not all(isinstance(path, str) for path in watched):
        raise DiscoveryError("pyproject.toml: [tool.kernelwatch] watched_paths must be a list of texts")
    if isinstance(limit_s, bool) or not isinstance(limit_s, int | float) or limit_s <= 0:
        raise DiscoveryError("pyproject.toml: [tool.kernelwatch] time_limit_s must be a positive number of seconds")
    return RepositorySettings(command or None, tuple(watched), min(float(limit_s), order.time_limit_s))


def _table(pyproject: str | None) -> dict[str, Any]:
    if pyproject is None:
        return {}
    if len(pyproject) > MAX_TABLE_BYTES:
        raise DiscoveryError("pyproject.toml is larger than 1 MiB")
    try:
        table = tomllib.loads(pyproject).get("tool", {}).get("kernelwatch", {})
    except (tomllib.TOMLDecodeError, AttributeError) as error:
        raise DiscoveryError(f"pyproject.toml cannot be read: {error}") from error
    if not isinstance(table, dict):
        raise DiscoveryError("pyproject.toml: [tool.kernelwatch] must be a table")
    return table


def build_key(*, suite_tree: str, settings: RepositorySettings, tree_of: Callable[[str], str | None]) -> str:
    """What decides a build: the suite's tree, the watched files, the build command and the tools."""
    digest = hashlib.sha256()
    watched = [f"{path}={tree_of(path)}" for path in sorted(settings.watched_paths)]
    for part in (suite_tree, settings.build_command or "", *watched, toolchain()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:24]


@lru_cache(maxsize=1)
def toolchain() -> str:
    """The compiler and the interpreter of this machine, in words."""
    try:
        done = subprocess.run(["gcc", "--version"], capture_output=True, text=True, timeout=10, check=False)
        compiler = done.stdout.partition("\n")[0]
    except (OSError, subprocess.TimeoutExpired):
        compiler = "no gcc"
    return f"{compiler}; Python {sys.version.split()[0]}"


def build_dir(root: Path, key: str) -> Path:
    """The folder for a build, made or touched; the folders used longest ago go when there are too many."""
    from runners.scratch import remove_tree

    folder = root / key
    folder.mkdir(parents=True, exist_ok=True)
    (root / f"{key}.used").touch()
    marks = sorted(root.glob("*.used"), key=lambda mark: mark.stat().st_mtime)
    for mark in marks[:-BUILDS_KEPT]:
        remove_tree(mark.with_suffix(""))
        mark.unlink(missing_ok=True)
    return folder
