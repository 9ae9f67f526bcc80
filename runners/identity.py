"""What a registered runner keeps on disk: where its service is, who it is, and the token that proves it."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ValidationError

from runners.errors import RunnerError

FILE_NAME = "runner.json"


class NotRegisteredError(RunnerError):
    """There is no usable registration in the state folder."""


class RunnerIdentity(BaseModel, frozen=True):
    """One line of JSON, readable by its owner only."""

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
            file.write(self.model_dump_json() + "\n")
            file.flush()
            os.fsync(handle)
        draft.replace(state_dir / FILE_NAME)

    @classmethod
    def load(cls, state_dir: Path) -> RunnerIdentity:
        """Read it; raises NotRegisteredError."""
        path = state_dir / FILE_NAME
        try:
            return cls.model_validate_json(path.read_text())
        except FileNotFoundError as error:
            raise NotRegisteredError(
                f"no runner is registered in {state_dir}: use `kernelwatch runner register`"
            ) from error
        except ValidationError as error:
            raise NotRegisteredError(f"{path} is damaged: register this runner again") from error
