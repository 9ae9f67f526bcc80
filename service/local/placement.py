"""Where files go that an unprivileged account must reach although root started us.

Root's own folder is usually closed to everybody else, and so are a data folder and a virtual environment inside it.
Then the files live below /var/lib/kernelwatch, in a folder named after the original place.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
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


def make_private(folder: Path) -> None:
    """Make a data folder that nobody else can list; what lies inside has modes of its own.

    As root it may be passed through, so that the servers' account gets to its files.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o711 if os.geteuid() == 0 else 0o700)


def erase(home: Path) -> None:
    """Remove a folder, and the one that stands for it where an account could not enter."""
    for folder in (home, SHARED_ROOT / f"data-{_digest(str(home))}"):
        if folder.exists():
            shutil.rmtree(folder)


def reachable_program(program: Path, *, trees: Sequence[Path], account: Account | None) -> Path:
    """`program` itself if the account may run it, else the same program in a copy of the folders it needs.

    `trees` are siblings: the first holds the program, the others what it loads by paths relative to itself (a wheel's
    `<package>.libs`). The copy is named after where the original is and when it was built.
    """
    if can_reach(program, account):
        return program
    copy = _shared(f"{trees[0].name}-{_digest(f'{trees[0]} {program.stat().st_mtime_ns}')}")
    if not copy.is_dir():
        partial = Path(tempfile.mkdtemp(dir=SHARED_ROOT, prefix="partial-"))
        for tree in trees:
            if tree.is_dir():
                shutil.copytree(tree, partial / tree.name, symlinks=True)
        _open_up(partial)
        if copy.is_dir():  # somebody else was faster
            shutil.rmtree(partial)
        else:
            partial.rename(copy)
    return copy / program.relative_to(trees[0].parent)


def _open_up(tree: Path) -> None:
    """Let everybody read a copied tree, and run what was runnable, whatever the umask of its installation was."""
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            runnable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runnable else 0o644)


def _shared(name: str) -> Path:
    SHARED_ROOT.mkdir(parents=True, exist_ok=True)
    SHARED_ROOT.chmod(0o755)
    return SHARED_ROOT / name


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
