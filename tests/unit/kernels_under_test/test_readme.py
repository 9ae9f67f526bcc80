"""The README's promise: a kernel is one file. Its example is run as a stranger would."""

import re
import shutil
from pathlib import Path

from runners.kernels_run import RowStatus, check_all, select
from runners.measure.discover import load_suite

ROOT = Path(__file__).parents[3] / "kernels_under_test"


def test_the_example_is_found_and_right_on_every_shape(tmp_path):
    suite_dir = tmp_path / "suite"
    shutil.copytree(ROOT, suite_dir, ignore=shutil.ignore_patterns("__pycache__"))
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (suite_dir / "gemm" / "gemm_f32_rows.py").write_text(example)
    suite = load_suite(suite_dir)
    chosen = select(suite, tier="core", device="cpu", pattern="gemm_f32_rows")
    rows = list(check_all(suite, chosen, build_dir=tmp_path / "build", seeds=(1,)))
    assert len(rows) >= 3
    assert {row.status for row in rows} == {RowStatus.OK}


def test_every_family_is_in_the_readme():
    families = {problem.family for problem in load_suite(ROOT).problems}
    text = (ROOT / "README.md").read_text()
    assert {family for family in families if f"| `{family}` |" not in text} == set()
