"""One-line edits of a real kernel, seen by `kernelwatch compare`: `python benchmarks/edits.py`.

Each edit becomes a commit of its own beside the bundled suite, and is compared with it on this machine. Most cost
something, by construction; a rename costs nothing and must not even be timed. The status is 1 when an edit that costs
goes unseen, or when the rename is timed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.local.demo.edits import Edit, RenameWord, Replace, SetMacro

ROOT = Path(__file__).resolve().parents[1]
SUITE = "kernels_under_test"
SOURCE = f"{SUITE}/gemm/gemm_f32.c"
BINDING = f"{SUITE}/gemm/gemm_f32.py"
BUDGET_S = 30
IDENTITY = ("-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false")


@dataclass(frozen=True, slots=True)
class Case:
    """One edit and the verdict that it must get for at least one shape; None: shown without a target."""

    name: str
    edit: Edit
    expected: str | None = "regression"


def _flag(flag: str) -> Edit:
    return Replace(BINDING, 'sources=("gemm_f32.c",),', f'sources=("gemm_f32.c",), flags=("{flag}",),')


CASES = (
    Case("register tile of 8 rows", SetMacro(SOURCE, "MR", 8)),
    Case("register tile of 4 rows", SetMacro(SOURCE, "MR", 4)),
    Case("register tile of 24 rows (spills)", SetMacro(SOURCE, "MR", 24)),
    Case("register tile of 14 rows", SetMacro(SOURCE, "MR", 14), None),
    Case("panels 32 deep", SetMacro(SOURCE, "KC", 32)),
    Case("panels 1024 deep", SetMacro(SOURCE, "KC", 1024), None),
    Case("built with -O2", _flag("-O2"), None),
    Case("built with -O1", _flag("-O1")),
    Case("a function renamed", RenameWord(SOURCE, "pack_panel", "pack_weights"), "same (identical code)"),
)


def main() -> int:
    """Print one line a shape of each edit; 1 when an edit did not get its verdict."""
    unseen = 0
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder)
        shutil.copytree(ROOT / SUITE, repository / SUITE, ignore=shutil.ignore_patterns("__pycache__"))
        _git(repository, "init", "-q", "-b", "main")
        base = _commit(repository, "the suite")
        for case in CASES:
            _git(repository, "checkout", "-q", base)
            case.edit.apply(repository)
            found = compare(repository, base, _commit(repository, case.name))
            met = case.expected is None or case.expected in {row["verdict"] for row in found}
            unseen += not met
            title = case.name + ("" if met else f": NOT SEEN, expected {case.expected}")
            sys.stdout.write("\n".join([title, *_lines(found), ""]))
            sys.stdout.flush()
    return 1 if unseen else 0


def compare(repository: Path, base: str, head: str) -> list[dict[str, Any]]:
    """The verdicts of `kernelwatch compare` on the GEMM's shapes."""
    options = ("--repo", str(repository), "--kernel", "gemm_f32*", "--budget", f"{BUDGET_S}s", "--json")
    command = [sys.executable, "-m", "service.cli", "compare", base, head, *options]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode not in {0, 1, 2}:
        raise SystemExit(done.stderr)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["workloads"]
    return [row for row in rows if row["workload"].startswith("gemm_f32[")]


def _lines(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    for row in rows:
        ratio = f"{row['ratio'] - 1:+7.1%} ({row['pairs']} pairs)" if row.get("ratio") else "not timed"
        yield f"    {row['workload']:<40} {row['verdict']:<22} {ratio}"


def _commit(repository: Path, subject: str) -> str:
    _git(repository, "add", "-A")
    _git(repository, *IDENTITY, "commit", "-q", "-m", subject)
    return _git(repository, "rev-parse", "HEAD")


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
