import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from runners.kernels_cli import kernels

FROZEN = Path(__file__).parents[2] / "fixtures" / "suite_api_v1"


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        monkeypatch.setenv(name, "1")

    def call(command, *arguments, suite=FROZEN):
        return CliRunner().invoke(kernels, [command, "--suite", str(suite), *arguments])

    return call


def lines(result):
    return {line.split()[0]: line for line in result.stdout.splitlines()}


def test_list_shows_every_workload_and_what_cannot_run(invoke):
    result = invoke("list", "--tier", "weekly")
    assert result.exit_code == 0
    assert "a_library_nobody_has is not installed" in lines(result)["axpy_absent[a=2.5,mode=plain,n=1000]"]
    assert "weekly" in lines(result)["axpy_numpy[a=0.5,mode=other,n=1001]"]
    assert lines(result)["axpy_numpy[a=2.5,mode=plain,n=1000]"].endswith("control")


def test_check_passes_what_is_right_and_skips_what_is_absent(invoke):
    result = invoke("check", "--tier", "nightly")
    assert result.exit_code == 0, result.output
    assert lines(result)["axpy_c[a=0.5,mode=plain,n=1001]"].endswith("  ok")
    assert "skipped: a_library_nobody_has" in lines(result)["axpy_absent[a=2.5,mode=plain,n=1000]"]


def test_run_gives_times_work_rates_and_the_ratio_to_the_control(invoke):
    result = invoke("run", "--seconds", "0.01", "--json", "--kernel", "axpy_c")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout.splitlines()[0])
    assert row["status"] == "ok"
    assert row["median_s"] > 0
    assert row["bytes"] == 8000.0
    table = invoke("run", "--seconds", "0.01").stdout
    kernel = next(line.split() for line in table.splitlines() if line.startswith("axpy_c["))
    assert float(kernel[-2]) > 0
    assert "control" in table


def test_a_wrong_kernel_ends_with_status_one_and_its_reason(invoke, tmp_path):
    suite = tmp_path / "suite"
    (suite / "axpy").mkdir(parents=True)
    for path in (FROZEN / "axpy").iterdir():
        (suite / "axpy" / path.name).write_text(path.read_text().replace("a * x[i]", "a + x[i]"))
    for command in ("check", "run"):
        result = invoke(command, "--kernel", "axpy_c", suite=suite)
        assert result.exit_code == 1
        assert "wrong_result: seed 1" in result.stdout
        assert "1 of 1 workloads failed" in result.stderr


def test_one_key_may_be_chosen_although_it_holds_brackets(invoke):
    result = invoke("check", "--kernel", "axpy_c[a=2.5*")
    assert list(lines(result)) == ["workload", "axpy_c[a=2.5,mode=plain,n=1000]"]


def test_a_pattern_that_matches_nothing_is_told(invoke):
    result = invoke("run", "--kernel", "nothing")
    assert result.exit_code == 1
    assert "no cpu workload of the core tier matches 'nothing'" in result.stderr


def test_a_suite_that_cannot_be_loaded_is_told_without_a_traceback(invoke, tmp_path):
    result = invoke("list", suite=tmp_path / "gone")
    assert result.exit_code == 1
    assert "there is no suite folder" in result.stderr
    assert "Traceback" not in result.output


def test_a_prepare_that_forgets_its_return_is_told_so(invoke, tmp_path):
    shutil.copytree(FROZEN, tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    kernel = tmp_path / "suite" / "axpy" / "axpy_numpy.py"
    kernel.write_text(kernel.read_text().replace("return Launch(", "Launch("))
    result = invoke("check", "--kernel", "axpy_numpy", suite=tmp_path / "suite")
    assert result.exit_code == 1
    assert "prepare of axpy_numpy must return a Launch, and returned NoneType" in result.stdout
