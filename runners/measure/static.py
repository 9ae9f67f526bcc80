"""Static facts of a kernel: machine code and size, without timing."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def describe_code(suite: Any, implementation: Any, build_dir: Path) -> dict[str, Any]:
    """Facts of the object code of one implementation."""
    del suite, implementation, build_dir
    return {}
