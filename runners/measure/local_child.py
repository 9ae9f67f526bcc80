"""A child without a sandbox: for commands that a person runs on their own code, and for tests.

The runner's own children are confined by `runners.sandbox`; both are the same ChildHandle to the session.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from runners.errors import ChildDiedError, ChildGarbageError, ChildTimedOutError

LOG_TAIL_BYTES = 4000


class LocalChild:
    """`python -P -m runners.measure.child`, or another that answers so, in its process group, over two pipes."""

    def __init__(self, *, extra_env: Mapping[str, str] | None = None, module: str = "runners.measure.child") -> None:
        request_read, self._request_fd = os.pipe()
        self._reply_fd, reply_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        env = {**os.environ, **(extra_env or {})}
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            env.setdefault(name, "1")
        command = [sys.executable, "-P", "-m", module]
        command += ["--requests-fd", str(request_read), "--replies-fd", str(reply_write)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=env,
            pass_fds=(request_read, reply_write),
            start_new_session=True,
        )
        os.close(request_read)
        os.close(reply_write)
        self._buffer = b""

    @property
    def pid(self) -> int:
        """The child's process id, which is also its group."""
        return self._process.pid

    def request(self, message: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """Send one request and wait for its one line."""
        try:
            os.write(self._request_fd, json.dumps(message).encode() + b"\n")
        except BrokenPipeError as error:
            raise self._died() from error
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not select.select([self._reply_fd], [], [], left_s)[0]:
                self._kill()
                raise ChildTimedOutError(f"no answer to {message['op']!r} within {timeout_s:.0f} s", self._log_tail())
            part = os.read(self._reply_fd, 1 << 16)
            if not part:
                raise self._died()
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            reply = json.loads(line)
        except ValueError as error:
            raise ChildGarbageError("the child's answer is not JSON", self._log_tail()) from error
        if not isinstance(reply, dict):
            raise ChildGarbageError("the child's answer is not a JSON object", self._log_tail())
        return reply

    def close(self) -> None:
        """Kill the whole group and free the descriptors; safe to call twice."""
        if self._log.closed:
            return
        self._kill()
        os.close(self._request_fd)
        os.close(self._reply_fd)
        self._log.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _died(self) -> ChildDiedError:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        return ChildDiedError(f"the process ended by itself ({how})", self._log_tail())

    def _log_tail(self) -> str:
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LOG_TAIL_BYTES))
        return self._log.read().decode(errors="replace")
