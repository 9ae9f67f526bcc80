"""The README's promise: a kernel is one file. Its examples are run as a stranger would."""

import re
import shutil
from pathlib import Path

from runners.kernels_run import RowStatus, check_all, select
from runners.measure.discover import load_suite

ROOT = Path(__file__).parents[3] / "kernels_under_test"


def blocks(language):
    """The README's code in a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def checked(tmp_path, kernel, files):
    """The rows of a kernel, on every shape, of a copy of the suite with these files added."""
    suite_dir = tmp_path / "suite"
    shutil.copytree(ROOT, suite_dir, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in files.items():
        (suite_dir / name).write_text(text)
    suite = load_suite(suite_dir)
    chosen = select(suite, tier="nightly", device="cpu", pattern=kernel)
    return list(check_all(suite, chosen, build_dir=tmp_path / "build", seeds=(1, 2)))


def test_the_example_in_python_is_found_and_right_on_every_shape(tmp_path):
    rows = checked(tmp_path, "gemm_f32_rows", {"gemm/gemm_f32_rows.py": blocks("python")[0]})
    assert len(rows) >= 3
    assert {row.status for row in rows} == {RowStatus.OK}


def test_the_example_in_c_is_compiled_and_right_on_every_shape(tmp_path):
    files = {"rope/rope_f32_plain.py": blocks("python")[1], "rope/rope_f32_plain.c": blocks("c")[0]}
    rows = checked(tmp_path, "rope_f32_plain", files)
    assert len(rows) >= 3
    assert {row.status for row in rows} == {RowStatus.OK}


def test_every_library_that_a_kernel_may_ask_for_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    asked = {library for found in load_suite(ROOT).implementations for library in found.requires}
    assert {library for library in asked if f"`{library}`" not in text} == set()


def test_every_family_is_in_the_readme():
    families = {problem.family for problem in load_suite(ROOT).problems}
    text = (ROOT / "README.md").read_text()
    assert {family for family in families if f"| `{family}` |" not in text} == set()
