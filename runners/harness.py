"""The installed harness must be the same after a run as before: the second wall behind the sandbox's."""

from __future__ import annotations

import hashlib
from pathlib import Path

import runners
from runners.errors import RunnerError
from service import contract


class HarnessChangedError(RunnerError):
    """Somebody edited the installed measuring code while it measured."""


def harness_hash() -> str:
    """Hash of every Python file of the installed runners and of the contract."""
    package = Path(runners.__file__).parent
    digest = hashlib.sha256()
    for path in [*sorted(package.rglob("*.py")), Path(contract.__file__)]:
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
