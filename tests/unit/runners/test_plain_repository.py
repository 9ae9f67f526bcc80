"""A repository that is not ours: its Makefile builds, its suite folder is measured."""

import shutil
import subprocess
from pathlib import Path

from runners.kernels_run import RowStatus, check_all, select
from runners.measure.discover import load_suite

REPOSITORY = Path(__file__).parents[2] / "fixtures" / "plain_repository"


def checked(root):
    suite = load_suite(root / "benchmarks")
    chosen = select(suite, tier="nightly", device="cpu", pattern="*")
    return {row.key: row for row in check_all(suite, chosen, build_dir=root / "build", seeds=(1, 2))}


def test_a_repository_with_its_own_makefile_is_built_and_checked(tmp_path):
    root = tmp_path / "repository"
    shutil.copytree(REPOSITORY, root)
    subprocess.run(["make", "-s", "lib"], cwd=root, check=True)
    rows = checked(root)
    assert len(rows) == 6
    assert {row.status for row in rows.values()} == {RowStatus.OK}


def test_a_repository_that_was_not_built_says_which_library_is_missing(tmp_path):
    root = tmp_path / "repository"
    shutil.copytree(REPOSITORY, root)
    row = checked(root)["dots_library[cols=7,rows=3]"]
    assert row.status is RowStatus.CRASHED
    assert "libdots.so" in row.reason
