"""Fresh namespaces and a private, read-only view of the file system, as far as the kernel allows.

Each function returns what it reached as a word for the environment's facts and never raises for a refusal: the next
wall (Landlock, seccomp) must then hold alone, and the report says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from runners.confine import linux

_ISOLATED = {
    "network": linux.CLONE_NEWNET,
    "processes": linux.CLONE_NEWPID,
    "ipc": linux.CLONE_NEWIPC,
    "mounts": linux.CLONE_NEWNS,
}


def isolate() -> frozenset[str]:
    """Leave as many namespaces as possible; a process forked afterwards is in all of them."""
    if os.geteuid() != 0 and not enter_user_namespace():
        return frozenset()
    reached = set()
    for name, flag in _ISOLATED.items():
        try:
            linux.unshare(flag)
        except OSError:
            continue
        reached.add(name)
    if "mounts" in reached:
        try:
            linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
        except OSError:
            reached.discard("mounts")
    return frozenset(reached)


def enter_user_namespace() -> bool:
    """Become ourselves in a fresh user namespace, where one may isolate without being root."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # after a change of user, /proc/self would belong to root
        linux.unshare(linux.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError:
        return False
    return True


def _open_to_others(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


def closed_ancestor(path: Path) -> Path | None:
    """The topmost folder above `path` that a stranger may not pass through, or None."""
    return next((ancestor for ancestor in reversed(path.parents) if not _open_to_others(ancestor)), None)


def reveal(paths: Iterable[str]) -> None:
    """Make `paths` reachable for a stranger although folders above them are closed, in this mount namespace only.

    Steps: 1. group the paths by the topmost closed folder above each; 2. keep a handle on every path; 3. cover each
    closed folder by an empty one that is open; 4. bind the kept paths into it. What else lies in the closed folder
    (keys, tokens, histories) is out of sight. Needs CAP_SYS_ADMIN; raises OSError.
    """
    hidden: dict[Path, list[tuple[Path, int]]] = {}
    for path in _outermost(paths):
        ancestor = closed_ancestor(path)
        if ancestor is not None:
            hidden.setdefault(ancestor, []).append((path, os.open(path, os.O_PATH | os.O_CLOEXEC)))
    for ancestor, kept in hidden.items():
        linux.mount("none", str(ancestor), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755,size=1m")
        for path, handle in kept:
            if Path(f"/proc/self/fd/{handle}").is_dir():
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
            linux.mount(f"/proc/self/fd/{handle}", str(path), None, linux.MS_BIND | linux.MS_REC)
            os.close(handle)


def first_closed(paths: Iterable[str]) -> Path | None:
    """The first folder or file among and above `paths` that a stranger may not enter or read, or None."""
    for path in _outermost(paths):
        ancestor = closed_ancestor(path)
        if ancestor is not None:
            return ancestor
        wanted = 0o005 if path.is_dir() else 0o004
        if path.stat().st_mode & wanted != wanted:
            return path
    return None


def _outermost(paths: Iterable[str]) -> list[Path]:
    """The paths that exist, without those that lie inside another."""
    kept: list[Path] = []
    for path in sorted({Path(p) for p in paths if os.path.lexists(p)}):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return kept


def make_read_only(writable: Iterable[str]) -> bool:
    """Turn the whole tree read-only but for `writable` and /proc; False where the kernel refuses."""
    folders = [str(path) for path in _outermost(writable)]
    try:
        for folder in folders:
            linux.mount(folder, folder, None, linux.MS_BIND)
        linux.mount_setattr("/", attr_set=linux.MOUNT_ATTR_RDONLY, recursive=linux.AT_RECURSIVE)
        for folder in folders:
            linux.mount_setattr(folder, attr_clr=linux.MOUNT_ATTR_RDONLY)
    except OSError:
        return False
    try:
        linux.mount_setattr("/proc", attr_clr=linux.MOUNT_ATTR_RDONLY)
    except OSError:
        return True  # only the per-sandbox user namespace needs /proc writable
    return True


def private_proc() -> bool:
    """Mount a /proc that shows only this process namespace; the caller is its first process."""
    try:
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    except OSError:
        return False
    return True
