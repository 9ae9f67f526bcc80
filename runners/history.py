"""The first-parent line between two commits of a checkout, as a search on this machine needs it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from runners.checkout import CheckoutError
from service.contract import FailureKind

GIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """One commit of the line; equal suite trees of neighbours mean that the later one cannot have changed a kernel."""

    sha: str
    subject: str
    author: str
    suite_tree: str | None


def steps_between(repo: Path, good: str, bad: str, *, suite: str) -> tuple[Step, ...]:
    """Return the good end and every first-parent commit after it up to the bad end, oldest first.

    Raises CheckoutError with a sentence where that is no line.
    """
    good_sha, bad_sha = resolve(repo, good), resolve(repo, bad)
    if good_sha == bad_sha:
        raise CheckoutError(f"{good} and {bad} are the same commit", FailureKind.PERMANENT)
    line = _git(repo, "rev-list", "--first-parent", "--reverse", f"{good_sha}..{bad_sha}").split()
    if not line or _git(repo, "rev-parse", "--verify", "--quiet", f"{line[0]}^1").strip() != good_sha:
        raise CheckoutError(
            f"{good} is not on the first-parent line of {bad}: `git merge-base {good} {bad}` may be",
            FailureKind.PERMANENT,
        )
    return tuple(_step(repo, sha, suite) for sha in (good_sha, *line))


def resolve(repo: Path, revision: str) -> str:
    """Return the full id of a revision; raises CheckoutError if there is no such commit."""
    found = _git(repo, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    if not found:
        raise CheckoutError(f"{repo.resolve()} has no commit {revision!r}", FailureKind.PERMANENT)
    return found


def _step(repo: Path, sha: str, suite: str) -> Step:
    subject, author = _git(repo, "show", "--no-patch", "--format=%s%x00%an", sha).rstrip("\n").split("\0")
    tree = _git(repo, "rev-parse", "--verify", "--quiet", f"{sha}:{suite}").strip()
    return Step(sha=sha, subject=subject, author=author, suite_tree=tree or None)


def _git(repo: Path, *arguments: str) -> str:
    """What git says; nothing where it refuses (`--quiet`)."""
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=GIT_S,
        errors="replace",
    )
    return done.stdout if done.returncode == 0 else ""
