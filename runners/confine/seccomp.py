"""seccomp: no sockets to anywhere, no io_uring, no tracing of others, no new namespaces.

A classic-BPF filter looks at the syscall number (and, for `socket`, at the address family, its first argument) and
answers EACCES or EPERM. Where namespaces and Landlock hold this is the second wall; where both are missing it is the
only one. Layout from the kernel's userspace-api/seccomp_filter page.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import sys
from enum import StrEnum

from runners.confine import linux

_SECCOMP_MODE_FILTER = 2
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000
_KILL = 0x8000_0000
_LOAD, _JUMP_EQ, _JUMP_GE, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16
_AF_UNIX = 1
_X32 = 0x4000_0000

_ARCHES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_SOCKET = {"x86_64": 41, "aarch64": 198}
# connect, sendto/sendmsg stay usable on inherited socketpairs; connect is what reaches a stranger's Unix socket.
_CONNECT = {"x86_64": 42, "aarch64": 203}
_FORBIDDEN: dict[str, tuple[int, ...]] = {
    # ptrace, process_vm_readv/writev, unshare, setns, mount, umount2, pivot_root, chroot, add_key, request_key, keyctl,
    # bpf, userfaultfd, perf_event_open, open_by_handle_at, init_module, finit_module, kexec_load, io_uring_*,
    # the new mount calls
    "x86_64": (101, 310, 311, 272, 308, 165, 166, 155, 161, 248, 249, 250, 321, 323, 298, 304, 175, 313, 246),
    "aarch64": (117, 270, 271, 97, 268, 40, 39, 41, 51, 217, 218, 219, 280, 282, 241, 265, 105, 273, 104),
}
# chmod, chown and their kin: Landlock does not govern them, a read-only file system does.
_MODES: dict[str, tuple[int, ...]] = {
    "x86_64": (90, 91, 268, 452, 92, 93, 94, 260),
    "aarch64": (52, 53, 452, 54, 55),
}
_FORBIDDEN_EVERYWHERE = (425, 426, 427, 428, 429, 430, 431, 432, 433, 442)


def _step(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _program(machine: str, forbidden: tuple[int, ...]) -> bytes:
    steps = [
        _step(_LOAD, _ARCH),
        _step(_JUMP_EQ, _ARCHES[machine], if_true=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [_step(_JUMP_GE, _X32, if_false=1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    for number in forbidden:
        steps += [_step(_JUMP_EQ, number, if_false=1), _step(_RETURN, _ERRNO | errno.EPERM)]
    steps += [_step(_JUMP_EQ, _CONNECT[machine], if_false=1), _step(_RETURN, _ERRNO | errno.EACCES)]
    steps += [
        _step(_JUMP_EQ, _SOCKET[machine], if_false=3),
        _step(_LOAD, _FIRST_ARGUMENT + (0 if sys.byteorder == "little" else 4)),
        _step(_JUMP_EQ, _AF_UNIX, if_true=1),
        _step(_RETURN, _ERRNO | errno.EACCES),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


class Modes(StrEnum):
    """Whether the modes and owners of files may be changed."""

    FREE = "free"
    FIXED = "fixed"  # where the file system is not read-only


def restrict(modes: Modes = Modes.FREE) -> None:
    """Install the filter on this process and its descendants; needs no_new_privs. OSError where it cannot."""
    machine = platform.machine()
    if machine not in _ARCHES:
        raise OSError(f"no system call table for {machine}")
    fixed = _MODES[machine] if modes is Modes.FIXED else ()
    program = _program(machine, (*_FORBIDDEN[machine], *_FORBIDDEN_EVERYWHERE, *fixed))
    linux.prctl(
        linux.PR_SET_SECCOMP,
        _SECCOMP_MODE_FILTER,
        ctypes.byref(_Filter(length=len(program) // 8, steps=program)),
    )
