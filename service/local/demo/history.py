"""Build the demo's repository: the bundled suite and its planned edits as real git commits.

Author, dates and content are fixed, so the hashes are the same on every machine with the same suite. Nothing of the
user's git configuration takes part.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.local.demo.plan import PLAN, PREPARATION, PlannedCommit, PlannedPush
from service.local.errors import LocalError, StartError

AUTHORS = (("Ada Tile", "ada@example.com"), ("Ben Warp", "ben@example.com"), ("Cleo Lane", "cleo@example.com"))
FIRST_DATE = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
BETWEEN = timedelta(hours=7, minutes=13)
SUITE = "kernels_under_test"
# The part of the bundled suite that the demo measures: three C kernels, their problems, one NumPy control, and the
# helpers at the suite's top that all of them share.
SHARED_PATTERNS = ("*.py", "*.jsonl")
KERNEL_FILES = (
    "gemm/problem.py",
    "gemm/gemm_f32.py",
    "gemm/gemm_f32.c",
    "gemm/gemm_f32_openblas.py",
    "attention/problem.py",
    "attention/attention_f32.py",
    "attention/attention_f32.c",
    "moe/problem.py",
    "moe/moe_f32.py",
    "moe/moe_f32.c",
)


@dataclass(frozen=True, slots=True)
class MadeCommit:
    """A planned commit and the hash it became; `position` counts first parents from the root, None on a side branch."""

    planned: PlannedCommit
    sha: str
    position: int | None


@dataclass(frozen=True, slots=True)
class MadePush:
    """A planned push and its commits, side branches included, oldest first."""

    commits: tuple[MadeCommit, ...]

    @property
    def tip(self) -> MadeCommit:
        """The commit that the branch points to after the push."""
        return self.commits[-1]


def bundled_suite() -> Path:
    """The folder of the suite that this installation brings; found, not imported."""
    spec = importlib.util.find_spec(SUITE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        return Path(place)
    raise LocalError(f"the bundled suite {SUITE} is not installed")


def git(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """Run git in a folder, untouched by anybody's configuration, and return what it says."""
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", "TZ": "UTC"}
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "-c", "core.fileMode=false", "-c", "gc.auto=0", *arguments],
        cwd=folder,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), **isolated, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise StartError(f"git {' '.join(arguments)} failed in {folder}:\n{done.stderr}")
    return done.stdout.strip()


def build_history(
    folder: Path, *, plan: Sequence[PlannedPush] = PLAN, suite: Path | None = None
) -> tuple[MadePush, ...]:
    """Make the repository in `folder` (new or empty) with branch `main` at the last commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    writer = _Writer(folder)
    _lay_suite(suite or bundled_suite(), folder)
    return tuple(MadePush(tuple(made for planned in push.commits for made in writer.write(planned))) for push in plan)


class _Writer:
    """Turns planned commits into real ones, one clock tick each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0
        self._position = 0

    def write(self, planned: PlannedCommit) -> list[MadeCommit]:
        """Make one commit of the main line, and before it those of the branch that it merges."""
        made: list[MadeCommit] = []
        if planned.side:
            git(self._folder, "checkout", "--quiet", "-b", "side")
            made += [MadeCommit(commit, self._commit(commit), None) for commit in planned.side]
            git(self._folder, "checkout", "--quiet", "main")
            self._run("merge", "--quiet", "--no-ff", "-m", planned.subject, "side")
            git(self._folder, "branch", "--quiet", "-D", "side")
            sha = git(self._folder, "rev-parse", "HEAD")
        else:
            sha = self._commit(planned)
        made.append(MadeCommit(planned, sha, self._position))
        self._position += 1
        return made

    def _commit(self, planned: PlannedCommit) -> str:
        for edit in planned.edits:
            edit.apply(self._folder)
        git(self._folder, "add", "--all")
        self._run("commit", "--quiet", "-m", planned.subject)
        return git(self._folder, "rev-parse", "HEAD")

    def _run(self, *arguments: str) -> None:
        name, address = AUTHORS[self._made % len(AUTHORS)]
        moment = (FIRST_DATE + BETWEEN * self._made).isoformat()
        self._made += 1
        who = {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", name), ("EMAIL", address), ("DATE", moment))
        }
        git(self._folder, *arguments, environment=who)


def _lay_suite(source: Path, folder: Path) -> None:
    shared = [path.name for pattern in SHARED_PATTERNS for path in sorted(source.glob(pattern))]
    for name in (*shared, *KERNEL_FILES):
        target = folder / SUITE / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, target)
        target.chmod(0o644)
    for edit in PREPARATION:
        edit.apply(folder)
