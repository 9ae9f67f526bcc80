"""The CUDA sources, compiled for the host and run there: every kernel is right on small and ragged shapes."""

import shutil
import sys
from pathlib import Path

import pytest

from runners.measure.correctness import check, make_inputs, reference
from runners.measure.discover import load_suite
from tests.cuda_host.host import HostContext, fake_cupy

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3] / "kernels_under_test"
SUITE = load_suite(ROOT)
KERNELS = {found.name: found for found in SUITE.implementations if found.device == "cuda" and found.sources}
ATTENTION = [
    {"b": 1, "hq": 2, "hkv": 1, "sq": 70, "skv": 70, "d": 64, "causal": 1},
    {"b": 2, "hq": 1, "hkv": 1, "sq": 33, "skv": 97, "d": 128, "causal": 0},
    {"b": 1, "hq": 2, "hkv": 2, "sq": 5, "skv": 131, "d": 64, "causal": 1},
]
ROWS = [{"rows": 3, "cols": 512}, {"rows": 2, "cols": 77}, {"rows": 1, "cols": 1000}]
ROUTING = [
    {"t": 9, "e": 5, "topk": 2, "h": 40},
    {"t": 16, "e": 8, "topk": 3, "h": 64},
    {"t": 1, "e": 300, "topk": 8, "h": 7},
]
SHAPES = {
    "gemm": [{"m": 130, "n": 72, "k": 96}, {"m": 33, "n": 200, "k": 40}, {"m": 1, "n": 13, "k": 7}, {"m": 16, "n": 24, "k": 264}],
    "attention_prefill": ATTENTION,
    "attention_decode": [
        {"b": 2, "hq": 4, "hkv": 2, "kv": 37, "d": 64, "page": 16},
        {"b": 1, "hq": 2, "hkv": 1, "kv": 300, "d": 128, "page": 64},
        {"b": 1, "hq": 1, "hkv": 1, "kv": 1, "d": 40, "page": 16},
    ],
    "attention_window": [
        {"b": 1, "hq": 2, "hkv": 1, "sq": 70, "skv": 100, "d": 64, "window": 40},
        {"b": 1, "hq": 1, "hkv": 1, "sq": 33, "skv": 33, "d": 32, "window": 5},
        {"b": 1, "hq": 2, "hkv": 2, "sq": 5, "skv": 131, "d": 64, "window": 128},
    ],
    "mla_decode": [{"b": 1, "h": 3, "kv": 37}, {"b": 2, "h": 1, "kv": 1}, {"b": 1, "h": 9, "kv": 270}],
    "rmsnorm": ROWS,
    "add_rmsnorm": ROWS,
    "softmax": ROWS,
    "rope": [{"t": 3, "heads": 2, "d": 64}, {"t": 5, "heads": 3, "d": 26}, {"t": 1, "heads": 1, "d": 2}],
    "quantise_fp8_group128": [{"t": 3, "h": 256}, {"t": 1, "h": 128}, {"t": 5, "h": 384}],
    "silu_mul": [{"rows": 3, "i": 64}, {"rows": 1, "i": 77}, {"rows": 9, "i": 31}],
    "moe_gate": [{"t": 9, "e": 5, "topk": 2}, {"t": 4, "e": 256, "topk": 8}, {"t": 1, "e": 33, "topk": 33}],
    "gemm_batched": [{"b": 3, "m": 70, "n": 40, "k": 72}, {"b": 2, "m": 5, "n": 13, "k": 7}, {"b": 1, "m": 64, "n": 64, "k": 33}],
    "moe_layer": [
        {"t": 9, "e": 5, "topk": 2, "h": 40, "i": 24, "routing": "uniform"},
        {"t": 70, "e": 3, "topk": 1, "h": 33, "i": 70, "routing": "zipf"},
        {"t": 2, "e": 40, "topk": 8, "h": 64, "i": 7, "routing": "zipf"},
    ],
    "moe_permute": ROUTING,
    "moe_unpermute": ROUTING,
    "moe_grouped_gemm": [{"e": 3, "rows": 70, "k": 40, "n": 72}, {"e": 5, "rows": 7, "k": 33, "n": 20}, {"e": 1, "rows": 65, "k": 64, "n": 64}],
    "sample_top_k_top_p": [{"rows": 3, "vocab": 1003, "k": 7, "p": 0.5}, {"rows": 2, "vocab": 40, "k": 1, "p": 1.0}, {"rows": 2, "vocab": 600, "k": 50, "p": 0.95}],
    "kv_append": [{"t": 7, "slots": 19, "width": 13}, {"t": 1, "slots": 1, "width": 200}, {"t": 16, "slots": 16, "width": 64}],
    "kv_gather": [{"b": 3, "kv": 37, "page": 16, "width": 5}, {"b": 1, "kv": 1, "page": 4, "width": 1}, {"b": 2, "kv": 8, "page": 4, "width": 130}],
}  # fmt: skip
BROKEN = [
    (
        "gemm_wmma_bf16",
        "gemm/gemm_wmma_bf16.cu",
        "__syncthreads();\n  for (int k0 = 0, at = 0",
        "for (int k0 = 0, at = 0",
    ),
    ("gemm_mma_bf16", "gemm/gemm_mma_bf16.cu", "p < k;", "p < k + 8;"),
    ("attention_mma_bf16", "attention/attention_mma_bf16.cu", "sums[j][2 * half] *= shrink, ", ""),
    ("attention_wmma_bf16", "attention/attention_wmma_bf16.cu", "skv - sq + q0 + row + 1", "skv - sq + q0 + row + 2"),
    (
        "attention_window_bf16_cuda",
        "attention/attention_window_cuda.cu",
        "k0 + j >= end - window",
        "k0 + j > end - window",
    ),
    (
        "mla_decode_bf16_cuda",
        "attention/mla_split_cuda.cu",
        "if (i < DV / 32) values[i] = value;",
        "if (i < DV / 32) values[i] = score;",
    ),
    ("sample_f32_cuda", "sampling/sample_cuda.cu", "while (++kept < k && reached < p);", "while (++kept < k);"),
    ("moe_grouped_bf16_cuda", "moe/moe_grouped_cuda.cu", "expert * k + k0", "k0"),
    ("moe_layer_bf16_cuda", "moe/moe_layer_cuda.cu", "out[(long long)order[r] * h + q]", "out[(long long)r * h + q]"),
    ("moe_layer_bf16_cuda", "moe/moe_plan_cuda.cu", "start[e] = rows;", "start[e] = rows - 1;"),
    ("gemm_batched_bf16_cuda", "gemm/gemm_batched_cuda.cu", "w += (long long)blockIdx.z * n * k;", ""),
]


@pytest.fixture(scope="module")
def build_dir(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return tmp_path_factory.mktemp("host")


@pytest.fixture(autouse=True)
def _numpy_as_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy())


def verdicts(kernel, source_dir, build_dir):
    """Why the kernel is wrong, for each shape that it supports; checked again on fresh inputs through `load`."""
    found = []
    for axes in SHAPES[kernel.problem.name]:
        if kernel.supports is not None and not kernel.supports(axes):
            continue
        inputs = make_inputs(kernel, axes, seed=1)
        launch = kernel.prepare(HostContext(source_dir, kernel.sources, build_dir), inputs, axes)
        for seed in (1, 2):
            fresh = make_inputs(kernel, axes, seed=seed)
            launch.load(fresh)
            launch.run()
            found.append(check(kernel, axes, launch.output(), reference(kernel, fresh, axes)))
    return found


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_cuda_kernel_agrees_with_the_float64_reference(name, build_dir):
    kernel = KERNELS[name]
    assert kernel.requires == ("cupy",)
    found = verdicts(kernel, SUITE.files[name].parent, build_dir)
    assert len(found) >= 4
    assert [why for why in found if why is not None] == []


@pytest.mark.parametrize(("name", "source", "right", "wrong"), BROKEN, ids=lambda text: text.split("/")[-1][:24])
def test_a_broken_cuda_kernel_is_caught(name, source, right, wrong, build_dir, tmp_path):
    for path in (ROOT / source).parent.glob("*.cu"):
        shutil.copy(path, tmp_path)
    text = (ROOT / source).read_text()
    assert right in text
    (tmp_path / Path(source).name).write_text(text.replace(right, wrong))
    assert any(verdicts(KERNELS[name], tmp_path, build_dir))
