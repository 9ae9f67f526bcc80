"""Puts a commit's files on disk: a bare mirror per repository, a detached worktree per commit, a build folder per tree.

The source is only ever fetched from. Mirrors are never pruned or collected, so a commit that was force-pushed away
stays measurable. A worktree is held by a lock file of its owner; what nobody holds is left from a crash and is removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runners.errors import RunnerError
from runners.scratch import HeldDir
from service.contract import FailureKind

FETCH_TIMEOUT_S = 300.0
LOCAL_TIMEOUT_S = 120.0
_SHA = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class CheckoutError(RunnerError):
    """The commit cannot be had; `kind` says whether trying again may help."""

    def __init__(self, reason: str, kind: FailureKind) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Worktree:
    """One commit on disk."""

    sha: str
    root: Path
    suite_dir: Path
    suite_tree: str


class Mirror:
    """The bare mirror of one repository on this machine."""

    def __init__(self, cache_dir: Path, *, name: str, clone_url: str) -> None:
        slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] or "repository"
        slug += "-" + hashlib.sha256(clone_url.encode()).hexdigest()[:10]
        self.slug = slug
        self._url = clone_url
        self._git_dir = cache_dir / "mirrors" / f"{slug}.git"
        self._lock = cache_dir / "mirrors" / f"{slug}.lock"
        self._worktrees = cache_dir / "worktrees" / slug
        self._config = cache_dir / "mirrors" / f"{slug}.gitconfig"

    @contextmanager
    def worktree(self, sha: str, suite_path: str) -> Iterator[Worktree]:
        """Check `sha` out for as long as the block lasts; raises CheckoutError."""
        suite = _inside(suite_path)
        if not _SHA.fullmatch(sha):
            raise CheckoutError(f"{sha!r} is not a full commit id", FailureKind.PERMANENT)
        with self._locked():
            self._need(sha)
            tree = self._suite_tree(sha, suite)
        held = HeldDir(self._worktrees, sha[:12])
        try:
            with self._locked():
                self._git("worktree", "add", "--quiet", "--detach", str(held.path), sha)
            yield Worktree(sha, held.path, held.path / suite, tree)
        finally:
            held.remove()
            with self._locked():
                self._git("worktree", "prune")

    def read_file(self, sha: str, path: str) -> str | None:
        """A file of the commit, from the object store (a link is not followed); None when there is none."""
        done = self._run("cat-file", "blob", f"{sha}:{path}", timeout_s=LOCAL_TIMEOUT_S)
        return done.stdout if done.returncode == 0 else None

    def tree_of(self, sha: str, path: str) -> str | None:
        """The object id of a path in the commit, or None."""
        done = self._run("rev-parse", "--verify", "--quiet", f"{sha}:{path}", timeout_s=LOCAL_TIMEOUT_S)
        return done.stdout.strip() if done.returncode == 0 else None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _need(self, sha: str) -> None:
        """Bring the commit into the mirror: by its branches, else by its id (after a force push)."""
        if not (self._git_dir / "HEAD").exists():
            self._create()
        if self._has(sha):
            return
        refspecs = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        fetched = self._run("fetch", "--quiet", "--force", self._url, *refspecs, timeout_s=FETCH_TIMEOUT_S)
        if not self._has(sha):
            self._run("fetch", "--quiet", self._url, sha, timeout_s=FETCH_TIMEOUT_S)
        if self._has(sha):
            self._git("update-ref", f"refs/kernelwatch/{sha}", sha)
            return
        if fetched.returncode != 0:
            reason = fetched.stderr.strip().splitlines()[-1:] or ["git said nothing"]
            raise CheckoutError(f"the repository cannot be fetched: {reason[0]}", FailureKind.TRANSIENT)
        raise CheckoutError(f"the repository has no commit {sha[:12]}", FailureKind.PERMANENT)

    def _create(self) -> None:
        self._git_dir.parent.mkdir(parents=True, exist_ok=True)
        if _local_path(self._url) is not None:
            # git otherwise refuses a local repository that belongs to another user; this one was given by name.
            self._config.write_text("[safe]\n\tdirectory = *\n")
        self._git_plain("init", "--quiet", "--bare", str(self._git_dir))
        for key, value in (("gc.auto", "0"), ("maintenance.auto", "false"), ("core.hooksPath", "/dev/null")):
            self._git("config", key, value)

    def _has(self, sha: str) -> bool:
        return self._run("cat-file", "-e", f"{sha}^{{commit}}", timeout_s=LOCAL_TIMEOUT_S).returncode == 0

    def _suite_tree(self, sha: str, suite: PurePosixPath) -> str:
        tree = self.tree_of(sha, "" if str(suite) == "." else str(suite))
        kind = self._run("cat-file", "-t", tree, timeout_s=LOCAL_TIMEOUT_S).stdout.strip() if tree else ""
        if tree is None or kind != "tree":
            raise CheckoutError(f"commit {sha[:12]} has no folder {suite}", FailureKind.PERMANENT)
        return tree

    def _git(self, *arguments: str) -> str:
        done = self._run(*arguments, timeout_s=LOCAL_TIMEOUT_S)
        if done.returncode != 0:
            raise CheckoutError(f"git {arguments[0]} failed: {done.stderr.strip()[-300:]}", FailureKind.TRANSIENT)
        return done.stdout

    def _git_plain(self, *arguments: str) -> None:
        self._run(*arguments, timeout_s=LOCAL_TIMEOUT_S, inside=False)

    def _run(self, *arguments: str, timeout_s: float, inside: bool = True) -> subprocess.CompletedProcess[str]:
        location = [f"--git-dir={self._git_dir}"] if inside else []
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        environment |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        if self._config.exists():
            environment["GIT_CONFIG_GLOBAL"] = str(self._config)
        try:
            return subprocess.run(
                ["git", *location, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=timeout_s,
                check=False,
                env=environment,
                umask=0o022,
            )
        except subprocess.TimeoutExpired as error:
            reason = f"git {arguments[0]} did not end within {timeout_s:.0f} s"
            raise CheckoutError(reason, FailureKind.TRANSIENT) from error
        except FileNotFoundError as error:
            raise CheckoutError("git is not installed on this machine", FailureKind.TRANSIENT) from error


def _inside(path: str) -> PurePosixPath:
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts:
        raise CheckoutError(f"the suite's path {path!r} leads out of the repository", FailureKind.PERMANENT)
    return found


def _local_path(url: str) -> Path | None:
    path = Path(url.removeprefix("file://"))
    return path if path.is_absolute() else None
