"""Folders that live as long as their owner and are removed whatever is in them.

Beside each folder lies a lock file that its owner holds; a folder whose lock nobody holds is left from a crash.
"""

from __future__ import annotations

import fcntl
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

_HELD = ".held"


class HeldDir:
    """A private folder `root/prefix-…`; not made yet when `make` is left to somebody else (git does it itself)."""

    def __init__(self, root: Path, prefix: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.path = root / f"{prefix}-{uuid.uuid4().hex[:10]}"
        self._lock = _hold(self.path.with_suffix(_HELD))

    def make(self) -> Path:
        """Create the folder, for its owner only."""
        self.path.mkdir(mode=0o700)
        return self.path

    def remove(self) -> None:
        """Remove it; safe to call twice."""
        remove_tree(self.path)
        self.path.with_suffix(_HELD).unlink(missing_ok=True)
        self._lock.close()


def _hold(path: Path) -> IO[str]:
    while True:
        lock = path.open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return lock
        lock.close()  # somebody who cleans up took it for stale in the moment before it was locked


def remove_stale(root: Path) -> int:
    """Remove the folders directly under `root` whose owner is gone; how many there were."""
    removed = 0
    for holder in sorted(root.glob(f"*{_HELD}")):
        with suppress(FileNotFoundError), holder.open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            remove_tree(holder.with_suffix(""))
            holder.unlink(missing_ok=True)
            removed += 1
    return removed


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
    with suppress(OSError):
        path.rmdir()
