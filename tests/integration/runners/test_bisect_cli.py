"""`kernelwatch bisect` on a real history whose slow commit is known."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROBLEM = """
import numpy as np
from runners.api import Problem, Tolerance, Workload

SUM = Problem(
    name="sum", family="sum", axes=("n",),
    inputs=lambda axes, rng: {"x": rng.standard_normal(axes["n"], dtype=np.float32)},
    reference=lambda inputs, axes: np.array([inputs["x"].sum()]),
    flops=lambda axes: float(axes["n"]), bytes=lambda axes, dtype: 4.0 * axes["n"],
    tolerance=lambda dtype, axes: Tolerance(rtol=1e-3, atol=1e-2, rel_l2=1e-3),
    workloads=(Workload({"n": 256}),),
)
"""
KERNEL = """
import numpy as np
from runners.api import Launch, implementation
from .problem import SUM

ROUNDS = 20


@implementation("sum_py", problem=SUM, device="cpu", dtype="f32")
def prepare(ctx, inputs, axes):
    x, out = inputs["x"].copy(), np.zeros(1, np.float32)

    def run():
        for _ in range(ROUNDS):
            total = 0.0
            for value in x.tolist():
                total += value
        out[0] = total

    def load(fresh):
        x[:] = fresh["x"]

    return Launch(run=run, output=lambda: out, load=load)
"""
SLOW, BROKEN, COUNT = 4, 2, 6


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A good end and six commits: the second does not import, the third is docs, the fourth works half as much again."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path_factory.mktemp("repository")
    suite = root / "kernels_under_test"
    suite.mkdir()
    shas = []

    def git(*arguments):
        identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **identity}
        ).stdout

    def commit(text, kernel, *, docs=""):
        (suite / "problem.py").write_text(PROBLEM)
        (suite / "sum_py.py").write_text(kernel)
        (root / "README").write_text(docs)
        git("add", "-A")
        git("commit", "-qm", text, "--allow-empty")
        shas.append(git("rev-parse", "HEAD").strip())

    git("init", "-q", "-b", "main")
    slow = KERNEL.replace("ROUNDS = 20", "ROUNDS = 30")
    commit("good end", KERNEL)
    commit("words", KERNEL + "\n# one\n")
    commit("does not import", KERNEL + "\nimport nowhere\n")
    commit("docs", KERNEL + "\n# two\n", docs="more")
    commit("work more", slow + "\n# two\n")
    commit("more docs", slow + "\n# two\n", docs="still more")
    commit("tidy", slow + "\n# three\n")
    git("checkout", "-q", "-b", "aside", shas[1])
    commit("aside", KERNEL + "\n# aside\n")
    return root, shas


def run(repository, tmp_path, good, bad, *extra, kernel="sum_py"):
    root, _ = repository
    homes = {"KERNELWATCH_DATA_DIR": str(tmp_path / "data"), "KERNELWATCH_CACHE_DIR": str(tmp_path / "cache")}
    command = [
        sys.executable,
        "-m",
        "service.cli",
        "bisect",
        good,
        bad,
        "--repo",
        str(root),
        "--kernel",
        kernel,
        *extra,
    ]
    project = Path(__file__).parents[3]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=project, env={**os.environ, **homes}, timeout=500
    )


@pytest.mark.slow
def test_the_commit_that_works_more_is_named_with_its_evidence(repository, tmp_path):
    shas = repository[1]
    done = run(repository, tmp_path, shas[0], shas[COUNT], "--budget", "240s", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [culprit["sha"] for culprit in found["culprits"]] == [shas[SLOW]]
    assert found["culprits"][0]["subject"] == "work more"
    assert found["probability"] >= 0.95
    assert 0.3 < found["effect"] < 0.7
    assert set(found["posterior"]) == set(shas[1 : COUNT + 1])
    assert found["batches"][-1]["phase"] == "sandwich"  # fresh pairs of parent and culprit come last
    assert "so far" in done.stderr
    measured = {sha for batch in found["batches"] for sha in batch["commits"]}
    assert shas[COUNT - 1] not in measured  # its suite is its parent's: it cannot be the culprit


def test_a_range_that_changes_no_kernel_names_nobody(repository, tmp_path):
    shas = repository[1]
    done = run(repository, tmp_path, shas[SLOW], shas[SLOW + 1])
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.startswith("no_change")


def test_a_broken_commit_beside_the_slow_one_is_never_blamed(repository, tmp_path):
    shas = repository[1]
    done = run(repository, tmp_path, shas[BROKEN - 1], shas[BROKEN + 1], "--budget", "60s", "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert json.loads(done.stdout)["culprits"] == []


@pytest.mark.parametrize(
    ("good", "bad", "kernel", "words"),
    [
        ("nowhere", "main", "sum_py", "nowhere"),
        ("main", "main", "sum_py", "same commit"),
        ("aside", "main", "sum_py", "first-parent line"),
        ("main~1", "main", "sum_pi", "matches 'sum_pi'; near are sum_py"),
    ],
)
def test_what_cannot_be_searched_is_an_error_that_says_why(repository, tmp_path, good, bad, kernel, words):
    done = run(repository, tmp_path, good, bad, "--tier", "nightly", "--device", "cpu", kernel=kernel)
    assert done.returncode == 3
    assert words in done.stderr
    assert "Traceback" not in done.stderr
