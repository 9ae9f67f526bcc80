"""What a locked-in process says, made safe to keep: a bounded log, finite numbers, and its end in words."""

from __future__ import annotations

import math
import signal
from contextlib import suppress

LOG_HEAD_BYTES = 4 << 10
LOG_TAIL_BYTES = 12 << 10


class KeptLog:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._seen_bytes = 0
        self._head = b""
        self._tail = b""

    @property
    def overflowed(self) -> bool:
        """Whether more came than is allowed."""
        return self._seen_bytes > self._limit_bytes

    def add(self, part: bytes) -> None:
        """Take in some more."""
        self._seen_bytes += len(part)
        room = LOG_HEAD_BYTES - len(self._head)
        self._head += part[:room] if room > 0 else b""
        self._tail = (self._tail + part[max(0, room) :])[-LOG_TAIL_BYTES:]

    def text(self) -> str:
        """What is kept, with a line that says how much is missing."""
        missing = self._seen_bytes - len(self._head) - len(self._tail)
        middle = f"\n[... {missing} bytes left out ...]\n".encode() if missing > 0 else b""
        return (self._head + middle + self._tail).decode(errors="replace").replace("\0", "")


def finite_number(text: str) -> float:
    """A number as a child wrote it; one NaN would poison every figure it meets."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def describe_exit(code: int | None) -> str:
    """A sentence for an exit code as `subprocess` gives it."""
    if code is None:
        return "the process closed its result channel without an answer"
    if code == -signal.SIGXCPU:
        return "the process used up its CPU time (SIGXCPU)"
    if code < 0:
        with suppress(ValueError):
            return f"the process was killed by {signal.Signals(-code).name}"
        return f"the process was killed by signal {-code}"
    return f"the process ended with status {code} without an answer"
