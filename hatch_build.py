"""Build hook: compile the small C kernels of `service/stats` beside their sources.

Runs for wheels and for editable installs alike, so `pip install -e .` is all a developer needs.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("service/stats")
FLAGS = ["-O3", "-fPIC", "-shared", "-std=c11", "-Wall", "-Wextra", "-ffp-contract=off"]


def sources_hash(source: Path) -> str:
    """Hash a C file and the headers beside it; `service/stats/_native.py` compares it when it loads the library."""
    digest = hashlib.sha256()
    for part in (source, *sorted(source.parent.glob("*.h"))):
        digest.update(part.read_bytes())
    return digest.hexdigest()[:16]


class StatsExtension(BuildHookInterface[Any]):
    """Compile every `service/stats/_*.c` into a shared library loaded through ctypes."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Compile and register the libraries as build artefacts."""
        root = Path(self.root)
        compiler = os.environ.get("CC", "cc")
        for source in sorted((root / SOURCES).glob("_*.c")):
            library = source.with_suffix(".so")
            stamp = f'-DKW_SOURCES="{sources_hash(source)}"'
            subprocess.run([compiler, *FLAGS, stamp, "-o", str(library), str(source), "-lm"], check=True)
            build_data["artifacts"].append(str(library.relative_to(root)))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
