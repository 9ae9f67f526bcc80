"""The demo's history: reproducible, honest, and what it claims to be, checked with git and the compiler."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from runners.measure.discover import load_suite
from service.local.demo.edits import EditError, Move, RenameWord, Replace, SetMacro
from service.local.demo.history import SUITE, build_history, git
from service.local.demo.plan import PLAN, Planted, all_commits, must_be_found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    return folder, build_history(folder)


def flags_of(source: Path) -> tuple[str, ...]:
    """The further compiler flags that the kernel's binding names."""
    (binding,) = (text for path in source.parent.glob("*.py") if source.name in (text := path.read_text()))
    named = re.search(r"flags=\(([^)]*)\)", binding)
    return tuple(re.findall(r'"([^"]+)"', named[1])) if named else ()


def machine_code(source: Path, work: Path, flags: tuple[str, ...] = ()) -> bytes | None:
    """The bytes of the compiled functions, or None when it does not compile."""
    built = work / "built.o"
    compiled = subprocess.run(
        ["gcc", "-std=gnu11", "-O3", "-fPIC", "-fopenmp", "-march=x86-64-v3", "-g0", *flags, "-c", "-o", built, source],
        capture_output=True,
        check=False,
    )
    if compiled.returncode != 0:
        return None
    code = work / "code.bin"
    subprocess.run(["objcopy", "-O", "binary", "--only-section=.text", built, code], check=True)
    return code.read_bytes()


def test_same_suite_gives_the_same_hashes(made, tmp_path):
    assert [push.tip.sha for push in build_history(tmp_path)] == [push.tip.sha for push in made[1]]


def test_has_everything_that_was_promised(made):
    folder, pushes = made
    commits = [commit for push in pushes for commit in push.commits]
    assert len(commits) >= 30
    assert len(git(folder, "log", "--format=%H").split()) == len(commits)
    assert git(folder, "log", "--merges", "--format=%s") == "Merge branch 'routing-names'"
    kinds = [commit.planned.planted for commit in commits]
    for kind in (Planted.IMPROVEMENT, Planted.BROKEN_BUILD, Planted.WRONG_RESULT):
        assert kinds.count(kind) == 1
    assert {commit.family for commit in must_be_found() if commit.planted is Planted.REGRESSION} == {
        "gemm",
        "attention",
    }
    assert "R100" in git(folder, "log", "--name-status", "-M", "--format=")
    assert all(len(push.commits) >= 3 for push in PLAN)


def test_positions_are_those_of_the_first_parent_line(made):
    folder, pushes = made
    line = git(folder, "log", "--first-parent", "--reverse", "--format=%H").split()
    on_line = [commit for push in pushes for commit in push.commits if commit.position is not None]
    assert [commit.sha for commit in on_line] == line
    assert [commit.position for commit in on_line] == list(range(len(line)))


def test_suite_can_be_measured_from_the_first_commit_to_the_last(made):
    folder, pushes = made
    for push in (pushes[0], pushes[-1]):
        git(folder, "checkout", "--quiet", push.tip.sha)
        suite = load_suite(folder / SUITE)
        families = {item.problem.family for item in suite.implementations if not item.control}
        assert families == {"gemm", "attention", "moe"}
    git(folder, "checkout", "--quiet", "main")


def test_only_planted_commits_change_machine_code(made, tmp_path):
    folder, pushes = made
    before: dict[str, bytes | None] = {}
    compiled: dict[tuple[bytes, tuple[str, ...]], bytes | None] = {}
    for commit in (commit for push in pushes for commit in push.commits if commit.position is not None):
        git(folder, "checkout", "--quiet", commit.sha)
        sources = {path.parent.name: path for path in sorted((folder / SUITE).rglob("*.c"))}
        built = {family: (path.read_bytes(), flags_of(path)) for family, path in sources.items()}
        for family, path in sources.items():
            if built[family] not in compiled:
                compiled[built[family]] = machine_code(path, tmp_path, flags_of(path))
        after = {family: compiled[key] for family, key in built.items()}
        broken = [family for family, code in after.items() if code is None]
        assert bool(broken) == (commit.planned.planted is Planted.BROKEN_BUILD), commit.planned.subject
        moved = {f for f in after if f in before and None not in (after[f], before[f]) and after[f] != before[f]}
        if commit.planned.planted in {Planted.REGRESSION, Planted.IMPROVEMENT}:
            assert moved == {commit.planned.family}
        elif commit.planned.planted is Planted.NOTHING and "normalise" not in commit.planned.subject:
            assert not moved, commit.planned.subject
        before |= {family: code for family, code in after.items() if code is not None}
    git(folder, "checkout", "--quiet", "main")


def test_no_subject_gives_the_answer_away():
    words = ("slow", "fast", "regress", "improve", "perf", "broken", "wrong")
    assert not [c.subject for c in all_commits() if any(word in c.subject.lower() for word in words)]


@pytest.mark.parametrize(
    "edit",
    [
        Replace("a.c", "absent", "x"),
        Replace("a.c", "twice", "x"),
        Replace("missing.c", "x", "y"),
        RenameWord("a.c", "absent", "x"),
        RenameWord("a.c", "twice", "MR"),
        SetMacro("a.c", "KC", 1),
        Move("a.c", "b.c"),
    ],
)
def test_edit_that_finds_no_place_fails_and_changes_nothing(edit, tmp_path):
    (tmp_path / "a.c").write_text("#define MR 12\ntwice twice\n")
    (tmp_path / "b.c").write_text("other\n")
    with pytest.raises(EditError):
        edit.apply(tmp_path)
    assert (tmp_path / "a.c").read_text() == "#define MR 12\ntwice twice\n"
    assert (tmp_path / "b.c").read_text() == "other\n"
