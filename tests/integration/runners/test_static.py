"""Machine code without a GPU: what a locked-in run reports of it, what it need not time, and the gate on a laptop."""

import json

import pytest
from click.testing import CliRunner

from runners.device.cuda.nvrtc import unavailable
from runners.measure import identical
from runners.static_cli import static
from service.contract import MeasurementStatus, RunReason

C_SOURCE = "float total(const float *x, int n) { float s = 0; for (int i = 0; i < n; i++) s += x[i]; return s; }\n"
CUDA_SOURCE = """
extern "C" __global__ void __launch_bounds__(256) total(const float* x, float* y, int n) {
  float held[32];
  for (int i = 0; i < 32; i++) held[i] = x[i * n];
  float s = 0;
  for (int i = 0; i < 32; i++) s += held[i];
  y[threadIdx.x] = s;
}
"""
DYNAMIC = CUDA_SOURCE.replace(
    "s += held[i];", "s += held[(i * n) & 31];"
)  # an array with a computed index: on the stack
SUITE = {
    "suite/problem.py": """
import numpy as np
from runners.api import Problem, Tolerance, Workload

SUM = Problem(
    name="sum", family="sum", axes=("n",),
    inputs=lambda axes, rng: {"x": rng.standard_normal(axes["n"], dtype=np.float32)},
    reference=lambda inputs, axes: np.array([inputs["x"].sum()]),
    flops=lambda axes: float(axes["n"]), bytes=lambda axes, dtype: 4.0 * axes["n"],
    tolerance=lambda dtype, axes: Tolerance(rtol=1e-3, atol=1e-2, rel_l2=1e-3),
    workloads=(Workload({"n": 4096}), Workload({"n": 8192}, device="cuda")),
)
""",
    "suite/sum_f32.py": """
import ctypes
import numpy as np
from runners.api import Launch, implementation
from .problem import SUM


@implementation("sum_f32", problem=SUM, device="cpu", dtype="f32", sources=("sum.c",))
def prepare(ctx, inputs, axes):
    call = ctx.library().total
    call.restype = ctypes.c_float
    x, out = inputs["x"].copy(), np.zeros(1, np.float32)
    pointer = x.ctypes.data_as(ctypes.c_void_p)

    def run():
        out[0] = call(pointer, axes["n"])

    return Launch(run=run, output=lambda: out)
""",
    "suite/sum_cuda.py": """
from runners.api import implementation
from .problem import SUM


@implementation("sum_cuda", problem=SUM, device="cuda", dtype="f32", sources=("sum.cu",))
def prepare(ctx, inputs, axes):
    raise RuntimeError("never run here")
""",
    "suite/sum.c": C_SOURCE,
    "suite/sum.cu": CUDA_SOURCE,
}


@pytest.fixture
def compiler():
    missing = unavailable()
    if missing is not None:
        pytest.skip(missing)


@pytest.fixture
def no_audit(monkeypatch):
    monkeypatch.setattr(identical, "audited", lambda key, facts, shas: False)


@pytest.fixture
def commits(repository):
    base = repository.commit(SUITE, "base")
    comment = repository.commit({"suite/sum.c": "/* words */\n" + C_SOURCE, "suite/sum.cu": "// w\n" + CUDA_SOURCE})
    stack = repository.commit({"suite/sum.cu": DYNAMIC, "suite/sum.c": C_SOURCE.replace("s += x[i]", "s += 2 * x[i]")})
    return {"base": base, "comment": comment, "stack": stack}


def test_a_push_brings_the_facts_of_cpu_and_cuda_code_without_a_gpu(compiler, commits, measure, workshop):
    report = measure(commits["base"])
    found = {(one.benchmark, one.target): one for one in report.static}
    assert set(found) == {("sum_f32", "cpu"), *(("sum_cuda", arch) for arch in ("sm_80", "sm_90a", "sm_100a"))}
    assert report.static_missing is None
    cuda = found["sum_cuda", "sm_90a"]
    assert cuda.facts["registers"] > 0
    assert cuda.facts["stack_bytes"] == 0
    assert sum(count for name, count in cuda.facts.items() if name.startswith("sass.")) > 0
    assert cuda.code_hash
    assert cuda.recipe_hash
    assert found["sum_f32", "cpu"].facts["text_bytes"] > 0
    assert "march" in found["sum_f32", "cpu"].toolchain
    (kept,) = (workshop.cache_dir / "cuda_code").iterdir()
    written = kept.stat().st_mtime_ns
    measure(commits["base"])
    assert [path.stat().st_mtime_ns for path in kept.parent.iterdir()] == [written]


def test_without_the_extra_the_report_says_what_to_install(commits, measure, monkeypatch):
    missing = "NVRTC is not installed (pip install 'kernelwatch[static]')"
    monkeypatch.setattr("runners.measure.cuda_code.unavailable", lambda: missing)
    report = measure(commits["base"])
    assert report.static_missing == missing
    assert [one.target for one in report.static] == ["cpu"]


def test_a_confirmation_between_commits_of_equal_code_takes_no_timing(no_audit, commits, measure):
    report = measure(commits["comment"], partner_shas=(commits["base"],), reason=RunReason.CONFIRM)
    assert {(m.sha, m.status, m.identical_to, m.blocks) for m in report.measurements} == {
        (commits["comment"], MeasurementStatus.IDENTICAL, commits["base"], ()),
        (commits["base"], MeasurementStatus.IDENTICAL, commits["comment"], ()),
    }
    other = measure(commits["stack"], partner_shas=(commits["base"],), reason=RunReason.CONFIRM)
    assert MeasurementStatus.IDENTICAL not in {m.status for m in other.measurements}


def gate(repository, commits, monkeypatch, tmp_path, *arguments):
    monkeypatch.setenv("KERNELWATCH_CACHE_DIR", str(tmp_path / "gate"))
    monkeypatch.setenv("KERNELWATCH_DATA_DIR", str(tmp_path / "gate-data"))
    base, head, *more = arguments
    shown = CliRunner().invoke(
        static, [commits[base], commits[head], "--repo", str(repository.root), "--suite", "suite", "--json", *more]
    )
    assert shown.exception is None or isinstance(shown.exception, SystemExit), shown.exception
    found = json.loads(shown.output)
    assert found["exit_code"] == shown.exit_code
    return shown.exit_code, {(row["kernel"], row["target"]): row for row in found["kernels"]}


def test_the_gate_sees_no_comment_and_warns_of_a_stack(compiler, repository, commits, monkeypatch, tmp_path):
    code, rows = gate(repository, commits, monkeypatch, tmp_path, "base", "comment")
    assert code == 0
    assert {row["finding"] for row in rows.values()} == {"same"}
    assert len(rows) == 4
    code, rows = gate(repository, commits, monkeypatch, tmp_path, "base", "stack")
    assert code == 1
    assert rows["sum_f32", "cpu"]["finding"] == "look here"
    for arch in ("sm_80", "sm_90a", "sm_100a"):
        row = rows["sum_cuda", arch]
        assert row["finding"] == "warning"
        assert row["changes"]["stack_bytes"]["head"] >= 128


def test_the_gate_of_cpu_kernels_needs_no_cuda_compiler(repository, commits, monkeypatch, tmp_path):
    monkeypatch.setattr("runners.measure.cuda_code.unavailable", lambda: "NVRTC is not installed")
    code, rows = gate(repository, commits, monkeypatch, tmp_path, "base", "comment", "--arch", "cpu")
    assert (code, list(rows)) == (0, [("sum_f32", "cpu")])
    code, _ = gate(repository, commits, monkeypatch, tmp_path, "base", "comment")
    assert code == 2  # asked for CUDA targets, which nobody could read
