"""What use cases ask of the world outside: git, the queue, the clock. Adapters fill these Protocols in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol


class MirrorError(Exception):
    """The mirror could not do what was asked (unreachable, no such commit); trying again later may help."""


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What git says of one commit."""

    sha: str
    parents: tuple[str, ...]
    author: str
    author_email: str
    subject: str
    committed_at: datetime


class GitMirror(Protocol):
    """A bare copy of one repository: the truth of what was pushed, in which order."""

    def sync(self, *, timeout_s: float | None = None) -> None:
        """Fetch all branches; MirrorError when the remote cannot be reached in time."""

    def branch_tip(self, branch: str) -> str | None:
        """The sha at the end of a branch, or None if there is no such branch."""

    def contains(self, sha: str) -> bool:
        """Whether the mirror holds this commit."""

    def first_parent_line(self, ref: str) -> tuple[str, ...]:
        """First-parent shas from the root to `ref`."""

    def commits_between(self, before: str | None, after: str) -> tuple[str, ...]:
        """First-parent shas after `before` up to `after`, oldest first.

        From the root if `before` is None or unknown; where `before` lies off the line, from the fork.
        """

    def commits(self, shas: Iterable[str]) -> tuple[CommitFacts, ...]:
        """The facts of these commits, in the order asked; MirrorError names one that is missing."""

    def suite_trees(self, shas: Sequence[str], paths: Sequence[str]) -> Mapping[str, str | None]:
        """Per commit one hash over the trees at `paths` (the suite's path first); None if the suite is not there."""

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether `descendant` contains `ancestor` (a commit contains itself)."""

    def diff_names(self, before: str, after: str) -> tuple[str, ...]:
        """Paths that differ between two commits."""

    def diff_text(self, before: str, after: str, *, paths: Sequence[str] = (), limit_bytes: int = 65536) -> str:
        """The difference between two commits as text, cut at `limit_bytes`."""

    def read_file(self, sha: str, path: str, *, limit_bytes: int = 65536) -> str | None:
        """A text file at a commit, or None if it is missing, too big or not text."""


class Mirrors(Protocol):
    """Finds the mirror of a repository, making it on first use."""

    def open(self, *, repository_id: int, clone_url: str) -> GitMirror:
        """The mirror; nothing is fetched yet."""


class Bell(Protocol):
    """The queue as a doorbell: a lost ring only delays, so ringing never raises."""

    def ring(self, pool: str, run_id: int) -> None:
        """Tell the runners of `pool` that a run waits. Only after the run is committed."""

    def later(self, task: str, kwargs: Mapping[str, Any], *, countdown_s: float = 0.0) -> None:
        """Ask the service's own workers to do `task` (`service.*`)."""


class Clock(Protocol):
    """The present moment."""

    def __call__(self) -> datetime:
        """Now, in UTC, with its time zone."""
