"""What the locked-in process may do: one JSON argument from `runners.sandbox` to `runners.confine`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

# Reserved by Debian policy and never given to anybody, so that it owns no file and no process but the sandbox's.
SANDBOX_UID = 65533

REQUESTS_FD = 3  # the locked-in process reads requests here
RESULTS_FD = 4  # and writes results here


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Everything the launcher needs; descriptors are numbers in the launcher, limits are in bytes and seconds."""

    command: tuple[str, ...]
    environment: dict[str, str]
    working_dir: str
    read: tuple[str, ...]
    write: tuple[str, ...]
    devices: tuple[str, ...]
    requests_fd: int
    results_fd: int
    status_fd: int
    lifeline_fd: int
    address_space_bytes: int | None
    data_bytes: int
    file_bytes: int
    cpu_s: int
    processes: int
    open_files: int
    drop_to_uid: int | None

    def dumps(self) -> str:
        """As one JSON text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Spec:
        """The reverse of `dumps`."""
        fields = json.loads(text)
        for name in ("command", "read", "write", "devices"):
            fields[name] = tuple(fields[name])
        return cls(**fields)
