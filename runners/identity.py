"""What a registered runner keeps on disk: where its service is, who it is, and the token that proves it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from runners.errors import RunnerError

FILE_NAME = "runner.json"


class NotRegisteredError(RunnerError):
    """There is no usable registration in the state folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerIdentity:
    """One JSON object in a file that only its owner can read."""

    url: str
    runner_id: int
    token: str
    name: str
    pool: str
    device: str

    def save(self, state_dir: Path) -> None:
        """Write it so that nobody else can read it and a crash leaves the old one."""
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = state_dir / f".{FILE_NAME}.{os.getpid()}"
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(asdict(self)) + "\n")
            file.flush()
            os.fsync(handle)
        draft.replace(state_dir / FILE_NAME)

    @classmethod
    def load(cls, state_dir: Path) -> RunnerIdentity:
        """Read it; raises NotRegisteredError."""
        path = state_dir / FILE_NAME
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError as error:
            message = f"no runner is registered in {state_dir}: use `kernelwatch runner register`"
            raise NotRegisteredError(message) from error
        except (ValueError, TypeError) as error:
            raise NotRegisteredError(f"{path} is damaged: register this runner again") from error
