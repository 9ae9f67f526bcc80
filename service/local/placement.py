"""Where files go that an unprivileged account must reach although root started us.

Root's own folder is usually closed to everybody else, and so are a data folder and a virtual environment inside it.
Then the files live below /var/lib/kernelwatch, in a folder named after the original place.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from service.local.processes import Account, can_reach

SHARED_ROOT = Path("/var/lib/kernelwatch")


def reachable_folder(home: Path, account: Account | None) -> Path:
    """`home` itself if the account may enter it, else a folder that belongs to this home alone."""
    if can_reach(home, account):
        return home
    folder = _shared(f"data-{_digest(str(home))}")
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    return folder


def erase(home: Path) -> None:
    """Remove a folder, and the one that stands for it where an account could not enter."""
    for folder in (home, SHARED_ROOT / f"data-{_digest(str(home))}"):
        if folder.exists():
            shutil.rmtree(folder)


def reachable_program(program: Path, *, tree: Path, account: Account | None) -> Path:
    """`program` itself if the account may run it, else the same program in a copy of the `tree` it needs."""
    if can_reach(program, account):
        return program
    copy = _shared(f"{tree.name}-{_digest(f'{tree} {program.stat().st_mtime_ns}')}")
    if not copy.is_dir():
        partial = Path(tempfile.mkdtemp(dir=SHARED_ROOT, prefix="partial-"))
        shutil.copytree(tree, partial, dirs_exist_ok=True, symlinks=True)
        partial.chmod(0o755)
        if copy.is_dir():  # somebody else was faster
            shutil.rmtree(partial)
        else:
            partial.rename(copy)
    return copy / program.relative_to(tree)


def _shared(name: str) -> Path:
    SHARED_ROOT.mkdir(parents=True, exist_ok=True)
    SHARED_ROOT.chmod(0o755)
    return SHARED_ROOT / name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
