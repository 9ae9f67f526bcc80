"""Every bundled kernel is right on all its shapes, ragged ones included, and a broken copy of each is caught."""

import shutil
from pathlib import Path

import pytest

from runners.kernels_run import RowStatus, check_all, select, why_skipped
from runners.measure.discover import load_suite

ROOT = Path(__file__).parents[3] / "kernels_under_test"
SUITE = load_suite(ROOT)
CPU_KERNELS = [found for found in SUITE.implementations if found.device == "cpu"]

BROKEN = [
    # (source, what it says, what a plausible mistake says)
    ("gemm/gemm_f32.c", "least(NR, width - j), p0 == 0)", "least(NR, width - j), 1)"),
    ("attention/attention_f32.c", "if (shrink != 1.0f)", "if (0)"),
    ("moe/moe_f32.c", "row[j] += weights[r] * parts[r * h + j]", "row[j] = weights[r] * parts[r * h + j]"),
]


@pytest.fixture(scope="session")
def build_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("build")


@pytest.mark.parametrize("kernel", CPU_KERNELS, ids=lambda found: found.name)
def test_a_kernel_agrees_with_the_float64_reference_on_every_shape(kernel, build_dir):
    chosen = select(SUITE, tier="nightly", device="cpu", pattern=kernel.name)
    assert len(chosen) >= 3
    rows = list(check_all(SUITE, chosen, build_dir=build_dir, seeds=(11, 12)))
    skipped = why_skipped(kernel)
    if skipped:
        pytest.skip(skipped)
    assert [(row.key, row.reason) for row in rows if row.status is not RowStatus.OK] == []


@pytest.mark.parametrize(("source", "right", "wrong"), BROKEN, ids=lambda text: text.split("/")[-1][:20])
def test_a_broken_copy_of_a_kernel_is_a_wrong_result(source, right, wrong, build_dir, tmp_path):
    copy = tmp_path / "suite"
    shutil.copytree(ROOT, copy)
    text = (copy / source).read_text()
    assert text.count(right) == 1
    (copy / source).write_text(text.replace(right, wrong))
    suite = load_suite(copy)
    chosen = select(suite, tier="nightly", device="cpu", pattern=Path(source).stem)
    rows = list(check_all(suite, chosen, build_dir=build_dir, seeds=(11,)))
    assert RowStatus.WRONG_RESULT in {row.status for row in rows}


def test_every_c_source_has_a_broken_copy():
    sources = {source for found in CPU_KERNELS for source in found.sources}
    assert {Path(source).name for source, _, _ in BROKEN} == sources


def test_every_kernel_has_a_control_or_a_rival():
    problems = [found.problem.name for found in CPU_KERNELS if found.control]
    assert {found.problem.name for found in CPU_KERNELS} == set(problems)
