"""The git mirror: a bare repository in the cache folder, driven through the git command.

It only reads. Fetched objects are never collected, so that a commit that a force push took away can still be shown and
bisected. One process at a time fetches (a file lock); readers need no lock, git's own store is safe for them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from service.usecases.ports import CommitFacts, MirrorError

FETCH_TIMEOUT_S = 600.0
READ_TIMEOUT_S = 120.0
PROTOCOLS = "file:git:http:https:ssh"  # not ext::, which runs commands
FETCH_SPEC = "+refs/heads/*:refs/heads/*"
COMMIT_FORMAT = "%H%n%P%n%an%n%ae%n%ct%n%s"  # none of these can hold a line break
LAST_MOMENT_S = 253_402_300_799  # the end of the year 9999: a date may be forged, and must not stop a push


class GitMirrors:
    """The mirrors of all repositories, one folder each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, *, repository_id: int, clone_url: str) -> GitCommandMirror:
        """The mirror of a repository; made on first sync."""
        check_clone_url(clone_url)
        return GitCommandMirror(self._folder / f"{repository_id}.git", clone_url=clone_url)


class GitCommandMirror:
    """A bare copy of one repository."""

    def __init__(self, path: Path, *, clone_url: str) -> None:
        self._path = path
        self._clone_url = clone_url

    def sync(self, *, timeout_s: float | None = None) -> None:
        """Make the mirror if there is none, then fetch every branch and forget deleted ones."""
        limit_s = FETCH_TIMEOUT_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        with self._alone(deadline):
            if not (self._path / "HEAD").is_file():
                self._path.mkdir(parents=True, exist_ok=True)
                self._git("init", "-q", "--bare", timeout_s=READ_TIMEOUT_S)
                self._git("config", "gc.auto", "0", timeout_s=READ_TIMEOUT_S)
            remaining_s = max(deadline - time.monotonic(), 0.1)
            self._git("fetch", "-q", "--prune", "--no-tags", self._clone_url, FETCH_SPEC, timeout_s=remaining_s)

    def branch_tip(self, branch: str) -> str | None:
        """The sha at the end of a branch."""
        return self._resolve(f"refs/heads/{branch}^{{commit}}")

    def contains(self, sha: str) -> bool:
        """Whether this commit was ever fetched."""
        return is_sha(sha) and self._resolve(f"{sha}^{{commit}}") is not None

    def first_parent_line(self, ref: str) -> tuple[str, ...]:
        """First-parent shas from the root to `ref` (a branch or a sha)."""
        name = ref if is_sha(ref) else f"refs/heads/{ref}"
        return tuple(self._git("rev-list", "--first-parent", "--reverse", name, "--").split())

    def commits_between(self, before: str | None, after: str) -> tuple[str, ...]:
        """First-parent shas after `before` up to `after`, oldest first.

        The walk goes down from `after` and ends where history is shared with `before`: at `before` itself after an
        ordinary push, at the fork after a force push. Commits that a merge brought in from the side belong to the
        merge.
        """
        excluded = [f"^{before}"] if before is not None and self.contains(before) else []
        return tuple(self._git("rev-list", "--first-parent", "--reverse", after, *excluded, "--").split())

    def commits(self, shas: Iterable[str]) -> tuple[CommitFacts, ...]:
        """The facts of these commits, in the order asked, from one git process."""
        wanted = list(shas)
        if not wanted:
            return ()
        output = self._git(
            "log", "-z", "--no-walk=unsorted", f"--format={COMMIT_FORMAT}", "--stdin", stdin="\n".join(wanted) + "\n"
        )
        found = {facts.sha: facts for facts in map(_parse_commit, filter(None, output.split("\0")))}
        return tuple(found[sha] for sha in wanted)

    def suite_trees(self, shas: Sequence[str], paths: Sequence[str]) -> Mapping[str, str | None]:
        """Per commit one hash over the objects at `paths`; None if the first path (the suite) is missing.

        One `git cat-file --batch-check` answers for all commits and paths; a missing watched path counts as empty.
        """
        questions = "".join(f"{sha}:{path.strip('/')}\n" for sha in shas for path in paths)
        answers = self._git("cat-file", "--batch-check=%(objectname)", stdin=questions).splitlines()
        width = len(paths)
        trees: dict[str, str | None] = {}
        for index, sha in enumerate(shas):
            objects = [_object_of(answer) for answer in answers[index * width : (index + 1) * width]]
            trees[sha] = None if objects[0] is None else _combine(objects)
        return trees

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether `descendant` contains `ancestor`."""
        done = self._run("merge-base", "--is-ancestor", ancestor, descendant)
        if done.returncode not in {0, 1}:
            raise MirrorError(_last_line(done.stderr))
        return done.returncode == 0

    def diff_names(self, before: str, after: str) -> tuple[str, ...]:
        """Paths that differ between two commits."""
        return tuple(filter(None, self._git("diff", "--name-only", "-z", before, after, "--").split("\0")))

    def diff_text(self, before: str, after: str, *, paths: Sequence[str] = (), limit_bytes: int = 65536) -> str:
        """The difference between two commits, cut at `limit_bytes`."""
        text = self._git("diff", "--no-color", "--no-ext-diff", "--no-textconv", before, after, "--", *paths)
        return text.encode()[:limit_bytes].decode(errors="ignore")

    def read_file(self, sha: str, path: str, *, limit_bytes: int = 65536) -> str | None:
        """A text file at a commit, or None if it is missing, too big or not text."""
        spec = f"{sha}:{path}"
        size = self._run("cat-file", "-s", spec)
        if size.returncode != 0 or int(size.stdout) > limit_bytes:
            return None
        done = self._run("cat-file", "blob", spec)
        if done.returncode != 0 or b"\0" in done.stdout:
            return None
        return done.stdout.decode(errors="replace")

    def _resolve(self, spec: str) -> str | None:
        done = self._run("rev-parse", "-q", "--verify", "--end-of-options", spec)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def _git(self, *arguments: str, stdin: str | None = None, timeout_s: float = READ_TIMEOUT_S) -> str:
        done = self._run(*arguments, stdin=stdin, timeout_s=timeout_s)
        if done.returncode != 0:
            raise MirrorError(f"git {arguments[0]}: {_last_line(done.stderr)}")
        return done.stdout.decode(errors="replace")

    def _run(
        self, *arguments: str, stdin: str | None = None, timeout_s: float = READ_TIMEOUT_S
    ) -> subprocess.CompletedProcess[bytes]:
        command = [
            "git",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "safe.directory=*",
            "-c",
            "log.showSignature=false",
            "-C",
            str(self._path),
            *arguments,
        ]
        try:
            return subprocess.run(
                command,
                input=None if stdin is None else stdin.encode(),
                stdin=subprocess.DEVNULL if stdin is None else None,
                capture_output=True,
                env=_environment(),
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise MirrorError(f"git {arguments[0]} took longer than {timeout_s:.0f} s") from error
        except FileNotFoundError as error:
            raise MirrorError(f"git cannot run: {error}") from error

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Hold this mirror's fetch lock; the kernel frees it if we die."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with (self._path.with_suffix(".lock")).open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise MirrorError("another fetch of this repository takes too long") from error
                    time.sleep(0.02)
            yield


def check_clone_url(clone_url: str) -> None:
    """Refuse what git could take for an option or for a command to run."""
    if clone_url.startswith("-") or "::" in clone_url or any(ord(character) < 33 for character in clone_url):
        raise MirrorError(f"{clone_url!r} is not a clone URL")


def is_sha(text: str) -> bool:
    """Whether `text` is a full commit id (SHA-1 or SHA-256)."""
    return len(text) in {40, 64} and all(character in "0123456789abcdef" for character in text)


def _environment() -> dict[str, str]:
    """Git's environment: no prompts, no user's or system's configuration that could change an answer."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE") if name in os.environ}
    return kept | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS,
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }


def _parse_commit(text: str) -> CommitFacts:
    sha, parents, author, email, committed_at, subject = text.lstrip("\n").split("\n", 5)
    return CommitFacts(
        sha=sha,
        parents=tuple(parents.split()),
        author=author,
        author_email=email,
        subject=subject.rstrip("\n"),
        committed_at=datetime.fromtimestamp(min(max(int(committed_at), 0), LAST_MOMENT_S), tz=UTC),
    )


def _object_of(answer: str) -> str | None:
    return None if answer.endswith((" missing", " ambiguous")) else answer


def _combine(objects: Sequence[str | None]) -> str:
    return hashlib.sha256("\n".join(name or "-" for name in objects).encode()).hexdigest()


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it failed without a word"
