"""The forge's side of the demo: a bare repository that is pushed to, and GitHub's webhook for each push."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.adapters.github import DELIVERY_HEADER, EVENT_HEADER, SIGNATURE_HEADER, sign
from service.local.demo.history import MadePush, git
from service.local.errors import LocalError

NO_COMMIT = "0" * 40
BRANCH = "main"


class RefusedError(LocalError):
    """The service did not accept a webhook."""


@dataclass(frozen=True, slots=True)
class Forge:
    """Where the repository lies and who is told about pushes."""

    work: Path  # the repository with the whole history
    bare: Path  # what the service clones
    name: str  # "owner/name"
    secret: str
    web_url: str

    def create(self) -> None:
        """Make the bare repository, empty."""
        self.bare.mkdir(parents=True, exist_ok=True)
        git(self.bare, "init", "--quiet", "--bare", f"--initial-branch={BRANCH}")

    def push(self, made: MadePush) -> None:
        """Push up to the tip of `made`, then announce it as GitHub does; RefusedError unless the service takes it."""
        before = git(self.bare, "for-each-ref", "--format=%(objectname)", f"refs/heads/{BRANCH}") or NO_COMMIT
        git(self.work, "push", "--quiet", str(self.bare), f"{made.tip.sha}:refs/heads/{BRANCH}")
        body = json.dumps(self._payload(made, before=before)).encode()
        answer = httpx.post(
            f"{self.web_url}/webhooks/github",
            content=body,
            headers={
                "Content-Type": "application/json",
                EVENT_HEADER: "push",
                DELIVERY_HEADER: str(uuid.uuid4()),
                SIGNATURE_HEADER: sign(self.secret, body),
            },
            timeout=30.0,
            trust_env=False,
        )
        if answer.status_code != httpx.codes.ACCEPTED:
            raise RefusedError(f"the webhook was answered with {answer.status_code}: {answer.text[:300]}")

    def _payload(self, made: MadePush, *, before: str) -> dict[str, object]:
        """The parts of GitHub's push event that mean something here (its webhook documentation, event `push`)."""
        listed = [{"id": commit.sha, "message": commit.planned.subject, "distinct": True} for commit in made.commits]
        return {
            "ref": f"refs/heads/{BRANCH}",
            "before": before,
            "after": made.tip.sha,
            "created": before == NO_COMMIT,
            "deleted": False,
            "forced": False,
            "repository": {"full_name": self.name, "clone_url": str(self.bare), "default_branch": BRANCH},
            "commits": listed,
            "head_commit": listed[-1],
        }
