"""Landlock: an unprivileged process gives up files, TCP and signals for itself and all its descendants.

Constants and structure layouts follow the kernel's documentation (userspace-api/landlock); what an older ABI lacks is
left out of the request, and the caller is told which ABI was active.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from runners.confine import linux

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

_ALL_FS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_FS_NEWEST = (1 << 16) - 1
_TCP_BIND_AND_CONNECT = 0b11  # ABI 4
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11  # ABI 6
_VERSION_QUERY = 1
_RULE_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """The kernel's Landlock version, 0 where there is none."""
    try:
        return linux.syscall(linux.SYS_LANDLOCK_CREATE, None, 0, _VERSION_QUERY, what="landlock_create_ruleset")
    except OSError:
        return 0


def restrict(*, read: Iterable[str], write: Iterable[str], devices: Iterable[str]) -> int:
    """Allow reading below `read`, everything below `write`, reading and writing `devices`; nothing else.

    Also forbids TCP (ABI 4) and reaching abstract Unix sockets or signalling processes outside (ABI 6). Needs
    no_new_privs. Returns the ABI that was used; raises OSError when the kernel has no Landlock.
    """
    version = abi()
    if version == 0:
        raise OSError("this kernel has no Landlock")
    everything = _ALL_FS_BY_ABI.get(version, _ALL_FS_NEWEST)
    request = _Ruleset(fs=everything, net=_TCP_BIND_AND_CONNECT, scoped=_ABSTRACT_SOCKETS_AND_SIGNALS)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = linux.syscall(linux.SYS_LANDLOCK_CREATE, ctypes.byref(request), size, 0, what="landlock_create_ruleset")
    try:
        for paths, access in ((read, READ), (write, everything), (devices, ON_FILES & ~EXECUTE)):
            for path in paths:
                _allow(ruleset, path, access & everything)
        linux.syscall(linux.SYS_LANDLOCK_RESTRICT, ruleset, 0, what="landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a path that is not there, or not reachable, needs no permission
    try:
        if not stat.S_ISDIR(os.fstat(target).st_mode):
            access &= ON_FILES
        rule = _PathBeneath(access=access, parent_fd=target)
        linux.syscall(
            linux.SYS_LANDLOCK_ADD, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0, what=f"landlock {path}"
        )
    finally:
        os.close(target)
