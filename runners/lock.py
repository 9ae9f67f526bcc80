"""One measurement at a time per device of a host: an flock that dies with its holder."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOOK_S = 0.05


@contextmanager
def device_lock(folder: Path, device: str, *, patience_s: float = 0.0) -> Iterator[bool]:
    """Try to take the device for the block; yields whether it was free. `folder` is shared by all users of the host.

    flock(2) keeps no queue: a host's runner that only looks now and then would never meet a free moment of a busy
    device, so it may keep looking for `patience_s` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(OSError):
        folder.chmod(0o1777)
    path = folder / (re.sub(r"[^a-z0-9]+", "-", device.lower()) + ".lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except PermissionError:  # another user made it; a lock needs no right to write
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield _taken(handle, until=time.monotonic() + patience_s)
    finally:
        os.close(handle)


def _taken(handle: int, *, until: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(LOOK_S)
        else:
            return True
