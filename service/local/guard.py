"""Become another program that dies with its parent: `guard.py PARENT SIGNAL UID GID PROGRAM ARGUMENT...`.

Run by path, never imported. A child started through it gets SIGNAL from the kernel at the moment its parent dies
(prctl PR_SET_PDEATHSIG, see prctl(2)), so that `kill -9` of a supervisor leaves nothing running. The signal is armed
*after* the change of user, because the kernel clears it then, and the parent is checked *after* arming, because it
may have died in between. A fresh interpreter is used instead of `preexec_fn`, which is unsafe beside threads.
UID and GID are -1 to stay who we are.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Drop privileges, arm the death signal, and exec the program."""
    parent, number, uid, gid = (int(text) for text in arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        os.execvp(command[0], command)  # noqa: S606  # no shell is wanted
    except OSError as error:
        sys.exit(f"cannot start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
