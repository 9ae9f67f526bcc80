"""The Linux calls that Python does not offer, through ctypes: prctl, unshare, mount, capset.

Numbers are from the kernel's public headers (uapi/linux/{prctl,sched,mount,capability}.h). Syscall numbers are the same
on every architecture for calls added since Linux 5.1, which is why the newer ones need no table.
"""

from __future__ import annotations

import ctypes
import os
import platform

CLONE_NEWNS = 0x0002_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18

MOUNT_ATTR_RDONLY = 1
AT_FDCWD = -100
AT_RECURSIVE = 0x8000

SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE = 444
SYS_LANDLOCK_ADD = 445
SYS_LANDLOCK_RESTRICT = 446

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x2008_0522
_LAST_CAPABILITY = 63


def libc() -> ctypes.CDLL:
    """The C library, with errno kept per call."""
    return ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """Return `result`, or raise OSError named after `what` when it is negative."""
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")
    return result


def syscall(number: int, *arguments: object, what: str) -> int:
    """Call the kernel by number; integers travel as C longs."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check(int(libc().syscall(ctypes.c_long(number), *converted)), what)


def prctl(option: int, argument: int = 0, pointer: object = 0) -> None:
    """Set a property of this process."""
    third = ctypes.c_ulong(pointer) if isinstance(pointer, int) else pointer
    result = libc().prctl(option, ctypes.c_ulong(argument), third, ctypes.c_ulong(0), ctypes.c_ulong(0))
    check(int(result), f"prctl({option})")


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for fresh ones."""
    check(int(libc().unshare(flags)), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """Mount, bind or change the propagation of a mount."""
    arguments = [None if text is None else text.encode() for text in (source, target, kind)]
    result = libc().mount(*arguments, ctypes.c_ulong(flags), None if data is None else data.encode())
    check(int(result), f"mount {target}")


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount_setattr(target: str, *, attr_set: int = 0, attr_clr: int = 0, recursive: int = 0) -> None:
    """Set or clear mount attributes (Linux 5.12); `recursive` is 0 or AT_RECURSIVE."""
    attributes = _MountAttr(attr_set=attr_set, attr_clr=attr_clr)
    syscall(
        SYS_MOUNT_SETATTR,
        AT_FDCWD,
        ctypes.c_char_p(target.encode()),
        recursive,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
        what=f"mount_setattr {target}",
    )


def drop_capabilities() -> None:
    """Give up every capability, and the right to regain one by exec."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # beyond the newest capability of this kernel, or nothing to drop from
    number = _CAPSET.get(platform.machine())
    if number is not None:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        data = (ctypes.c_uint32 * 6)()
        syscall(number, ctypes.byref(header), ctypes.byref(data), what="capset")
