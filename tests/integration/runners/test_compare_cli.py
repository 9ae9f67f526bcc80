"""`kernelwatch compare` on real commits: every verdict that can be had without waiting for quiet."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = {
    "problem.py": """
import numpy as np
from runners.api import Problem, Tolerance, Workload

SUM = Problem(
    name="sum", family="sum", axes=("n",),
    inputs=lambda axes, rng: {"x": rng.standard_normal(axes["n"], dtype=np.float32)},
    reference=lambda inputs, axes: np.array([inputs["x"].sum()]),
    flops=lambda axes: float(axes["n"]), bytes=lambda axes, dtype: 4.0 * axes["n"],
    tolerance=lambda dtype, axes: Tolerance(rtol=1e-3, atol=1e-2, rel_l2=1e-3),
    workloads=(Workload({"n": 4096}),),
)
""",
    "sum_f32.py": """
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

    def load(fresh):
        x[:] = fresh["x"]

    return Launch(run=run, output=lambda: out, load=load)
""",
    "sum.c": """
#ifndef REPEAT
#define REPEAT 1
#endif
float total(const float *x, int n) {
    volatile float kept = 0;
    for (int r = 0; r < 20 * REPEAT; r++) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += x[i];
        kept = sum;
    }
    return kept;
}
""",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    for tool in ("git", "gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    root = tmp_path_factory.mktemp("repository")
    suite = root / "kernels_under_test"
    suite.mkdir()
    history = {}

    def git(*arguments):
        identity = {
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@b",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@b",
        }
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, **identity}
        ).stdout

    def commit(name, **files):
        for path, text in files.items():
            (suite / path.replace("__", ".")).write_text(text)
        git("add", "-A")
        git("commit", "-qm", name)
        history[name] = git("rev-parse", "HEAD").strip()

    git("init", "-q")
    source = SUITE["sum.c"]
    commit("base", **{name.replace(".", "__"): text for name, text in SUITE.items()})
    commit("comment", sum__c="/* words */\n" + source)
    commit("slow", sum__c=source.replace("REPEAT 1", "REPEAT 2"))
    commit("wrong", sum__c=source.replace("i < n", "i < n / 2"))
    commit("broken", sum__c=source.replace("float sum", "float sum sum"))
    commit("gone", sum__c=source, sum_f32__py=SUITE["sum_f32.py"].replace('"sum_f32"', '"total_f32"'))
    return root, history


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    root = tmp_path_factory.mktemp("homes")
    return {"KERNELWATCH_DATA_DIR": str(root / "data"), "KERNELWATCH_CACHE_DIR": str(root / "cache")}


def run(repository, homes, base, head, *extra):
    root, history = repository
    command = [sys.executable, "-m", "service.cli", "compare", history.get(base, base), history.get(head, head)]
    command += ["--repo", str(root), "--budget", "20s", *extra]
    project = Path(__file__).parents[3]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=project, env={**os.environ, **homes}, timeout=300
    )


def verdicts(done):
    return {w["workload"]: w["verdict"] for w in json.loads(done.stdout)["workloads"]}


def test_a_planted_slowdown_is_a_regression_with_exit_code_1(repository, homes):
    done = run(repository, homes, "base", "slow", "--json")
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["workloads"]
    assert found["verdict"] == "regression"
    assert found["ci"][0] < 2.0 < found["ci"][1] or 1.8 < found["ratio"] < 2.2


def test_a_comment_is_the_same_code_without_any_timing(repository, homes):
    done = run(repository, homes, "base", "comment", "--json")
    assert done.returncode == 0, done.stderr
    assert verdicts(done) == {"sum_f32[n=4096]": "same (identical code)"}
    assert json.loads(done.stdout)["device_s"] == 0.0


def test_a_wrong_result_is_exit_code_1(repository, homes):
    done = run(repository, homes, "base", "wrong")
    assert done.returncode == 1, done.stderr
    assert "wrong result" in done.stdout


def test_what_cannot_be_built_or_is_gone_is_not_comparable(repository, homes):
    broken = run(repository, homes, "base", "broken", "--json")
    assert (broken.returncode, verdicts(broken)) == (2, {"sum_f32[n=4096]": "not comparable"})
    gone = run(repository, homes, "base", "gone", "--json")
    assert gone.returncode == 2
    assert set(verdicts(gone).values()) == {"not comparable"}


def test_an_unknown_commit_is_an_error_that_names_it(repository, homes):
    done = run(repository, homes, "base", "nowhere")
    assert done.returncode == 3
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_kernel_that_nobody_has_is_an_error_that_names_the_near_ones(repository, homes):
    done = run(repository, homes, "base", "slow", "--kernel", "sum_pi")
    assert done.returncode == 3
    assert "no workload of the core tier for cpu matches 'sum_pi'; near are" in done.stderr
    assert "Traceback" not in done.stderr
