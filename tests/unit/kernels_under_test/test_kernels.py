"""Every bundled kernel is right on all its shapes, ragged ones included, and a broken copy of each is caught."""

import importlib.util
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from runners.kernels_run import RowStatus, check_all, select, why_skipped
from runners.measure.context import context_for
from runners.measure.correctness import check, make_inputs, reference
from runners.measure.discover import load_suite
from runners.measure.library import PORTABLE_ARCH

ROOT = Path(__file__).parents[3] / "kernels_under_test"
SUITE = load_suite(ROOT)
CPU_KERNELS = [found for found in SUITE.implementations if found.device == "cpu"]
CUDA_KERNELS = [found for found in SUITE.implementations if found.device == "cuda"]

BROKEN = [
    # (source, what it says, what a plausible mistake says)
    ("gemm/gemm_f32.c", "least(NR, width - j), p0 == 0)", "least(NR, width - j), 1)"),
    ("attention/attention_f32.c", "if (shrink != 1.0f)", "if (0)"),
    ("moe/moe_f32.c", "row[j] += weights[r] * parts[r * h + j]", "row[j] = weights[r] * parts[r * h + j]"),
    ("gemm/gemm_skinny_f32.c", "for (long q = p; q < k; q++) rest", "for (long q = p; q + 1 < k; q++) rest"),
    ("gemm/gemm_skinny_bf16.c", "sum[r] += left_odd * odd(right);", "sum[r] += left_odd * even(right);"),
    ("gemm/gemm_batched_f32.c", "w + i * n * k", "w"),
    ("attention/attention_window_f32.c", "top[i] = sink, total[i] = 1.0f;", "top[i] = sink, total[i] = 0.0f;"),
    ("attention/attention_decode_f32.c", "first = i % splits * SPLIT;", "first = 0;"),
    ("attention/mla_decode_f32.c", "? page[(j + jj) * DQ + p]", "? page[(j + jj) * DQ + (p < DV ? p : 0)]"),
    ("moe/moe_gate_f32.c", "choose(logits + r * e,", "choose(logits,"),
    ("moe/moe_permute_f32.c", "order[r] / topk * h", "r / topk * h"),
    ("moe/moe_unpermute_f32.c", "rows + place[slot] * h", "rows + slot * h"),
    ("moe/moe_grouped_f32.c", "w + expert * k * n", "w"),
    ("moe/silu_mul_f32.c", "activate(both + r * 2 * i,", "activate(both + r * i,"),
    ("norm/rmsnorm_f32.c", "+ epsilon);", "+ 0.1f);"),
    ("norm/rmsnorm_bf16.c", "* widen(weight[j]));", ");"),
    ("norm/add_rmsnorm_f32.c", "float value = left[j] + right[j];", "float value = left[j];"),
    ("norm/softmax_f32.c", "for (; j < cols; j++) sum += out[j] =", "for (; j < cols; j++) out[j] ="),
    ("rope/rope_f32.c", "in[j] * c[j] - in", "in[j] * c[j] + in"),
    ("quantise/quantise_fp8_f32.c", "(size + 0x7FFFF + (size >> 20 & 1)) >> 20", "size >> 20"),
    ("sampling/sample_f32.c", "} while (kept < k && sum < p);", "} while (kept < k);"),
    ("kvcache/kv_append_f32.c", "cache + slot[i] * width", "cache + i * width"),
    ("kvcache/kv_gather_f32.c", "cache + table[i] * page * width", "cache + i * page * width"),
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


def test_an_edit_in_one_family_cannot_reach_the_code_of_another():
    for source in [*ROOT.rglob("*.c"), *ROOT.rglob("*.cu")]:
        included = re.findall(r'#include "([^"]+)"', source.read_text())
        assert [name for name in included if not (source.parent / name).is_file() or "/" in name] == [], source


@pytest.mark.parametrize("kernel", [found for found in CPU_KERNELS if found.sources], ids=lambda found: found.name)
def test_a_kernel_is_right_when_built_for_the_portable_processor(kernel, build_dir):
    bound = select(SUITE, tier="nightly", device="cpu", pattern=kernel.name)[-1]
    inputs = make_inputs(kernel, bound.axes, seed=5)
    launch = kernel.prepare(context_for(SUITE, kernel, build_dir, arch=PORTABLE_ARCH), inputs, bound.axes)
    launch.run()
    assert check(kernel, bound.axes, launch.output(), reference(kernel, inputs, bound.axes)) is None


def test_every_cuda_kernel_is_measured_on_three_shapes_and_a_ragged_one():
    found = {kernel.name: select(SUITE, tier="nightly", device="cuda", pattern=kernel.name) for kernel in CUDA_KERNELS}
    assert {name: len(bound) for name, bound in found.items() if len(bound) < 3} == {}
    needs_even_sizes = {"gemm_fp8_nvmath"}
    ragged = {name for name, bound in found.items() if any("ragged" in one.workload.label for one in bound)}
    assert set(found) - ragged == needs_even_sizes


def test_both_devices_scan_the_columns_of_a_product_across_a_cliff_every_night():
    def columns(device):
        bound = select(SUITE, tier="nightly", device=device, pattern="gemm_*f32")
        return {one.axes["n"] for one in bound if one.implementation.problem.name == "gemm"}

    assert set(range(504, 529, 4)) <= columns("cpu")
    assert {2040, 2048, 2055, 2056, 2057, 2072} <= columns("cuda")


def test_every_kernel_has_a_control_or_a_rival():
    problems = [found.problem.name for found in CPU_KERNELS if found.control]
    assert {found.problem.name for found in CPU_KERNELS} == set(problems)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("gemm_bf16_cublas", "ml_dtypes"),
        ("gemm_batched_bf16_cublas", "ml_dtypes"),
        ("gemm_bf16_triton", "torch"),
        ("gemm_fp8_nvmath", "torch"),
        ("attention_bf16_torch", "torch"),
        ("attention_bf16_cudnn", "torch"),
        ("rmsnorm_bf16_flashinfer", "torch"),
        ("rope_f32_cute", "torch"),
    ],
)
def test_an_adapter_of_a_library_that_is_not_there_is_skipped_with_the_reason(name, library, build_dir, monkeypatch):
    kernel = next(found for found in SUITE.implementations if found.name == name)
    assert library in kernel.requires
    hidden = {one for one in kernel.requires if one != "cupy"}
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda one, *rest: None if one in hidden else real(one, *rest))
    chosen = select(SUITE, tier="nightly", device="cuda", pattern=name)
    assert len(chosen) >= 3
    rows = list(check_all(SUITE, chosen, build_dir=build_dir, seeds=(1,)))
    first_missing = next(one for one in kernel.requires if one in hidden or real(one) is None)
    assert {(row.status, row.reason) for row in rows} == {(RowStatus.SKIPPED, f"{first_missing} is not installed")}


@pytest.mark.parametrize(
    ("problem", "axes"),
    [
        ("gemm", {"m": 70, "n": 4100, "k": 33}),
        ("attention_prefill", {"b": 2, "hq": 4, "hkv": 2, "sq": 33, "skv": 61, "d": 16, "causal": 1}),
        ("attention_prefill", {"b": 1, "hq": 2, "hkv": 1, "sq": 40, "skv": 40, "d": 16, "causal": 0}),
    ],
)
def test_sampled_rows_of_a_reference_are_the_rows_of_the_whole(problem, axes):
    kernel = next(found for found in SUITE.implementations if found.problem.name == problem)
    inputs = make_inputs(kernel, axes, seed=1)
    rows, values = kernel.problem.sample(inputs, axes, np.random.default_rng(2))
    whole = reference(kernel, inputs, axes)
    assert len(set(rows)) == 64
    np.testing.assert_allclose(values, whole.reshape(-1, whole.shape[-1])[rows], rtol=1e-12, atol=1e-13)
