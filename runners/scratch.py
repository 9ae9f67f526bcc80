"""Folders that live as long as one sandboxed process and are removed whatever is in them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class ScratchDir:
    """A fresh private folder under `root`."""

    def __init__(self, root: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="run-", dir=root))

    def remove(self) -> None:
        """Remove it; safe to call twice."""
        remove_tree(self.path)


def remove_tree(path: Path) -> None:
    """Remove a folder that a stranger may have filled: closed folders inside are opened first."""

    def open_and_retry(again: Callable[[str], object], name: str, _: object) -> None:
        if name == str(path):
            return
        with suppress(OSError):
            Path(name).parent.chmod(0o700)
            if Path(name).is_dir() and not Path(name).is_symlink():
                Path(name).chmod(0o700)
                shutil.rmtree(name, ignore_errors=True)
            else:
                again(name)

    shutil.rmtree(path, onerror=open_and_retry)
    if path.exists():
        with suppress(OSError):
            path.rmdir()
