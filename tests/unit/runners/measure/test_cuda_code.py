"""What is kept of CUDA sources: by content, within a time, and only what a compiler may say."""

import pytest

from runners.errors import ChildTimedOutError
from runners.measure.cuda_code import CudaCode

FACTS = {"toolchain": "nvrtc 0", "code_hash": "abc", "sm_80.registers": 32.0}


class Compiler:
    """Stands for the compiler's process: answers what the test wants and counts what it is asked."""

    def __init__(self, answer=None):
        self.asked, self.closed, self.answer = [], 0, answer or (lambda message: {"ok": True, "facts": FACTS})

    pid = 1

    def request(self, message, *, timeout_s):
        self.asked.append(message["source"])
        return self.answer(message)

    def close(self):
        self.closed += 1


@pytest.fixture
def suite(tmp_path):
    root = tmp_path / "suite"
    (root / "gemm").mkdir(parents=True)
    (root / "gemm" / "a.cu").write_text("A")
    (root / "gemm" / "b.cu").write_text("B")
    return root


def reader(tmp_path, compiler, *, clock=lambda: 0.0, budget_s=10.0):
    code = CudaCode(cache_dir=tmp_path / "kept", spawn=lambda: compiler, clock=clock, budget_s=budget_s)
    code.missing = None  # whether or not a compiler is installed here
    return code


def test_equal_sources_are_compiled_once_and_for_every_reader(tmp_path, suite):
    compiler = Compiler()
    for _ in range(2):
        assert reader(tmp_path, compiler).facts_of(suite, ("gemm/a.cu", "gemm/b.cu"), ()) == FACTS
    assert compiler.asked == ["A\nB"]


def test_another_text_or_another_flag_is_compiled_anew(tmp_path, suite):
    compiler = Compiler()
    code = reader(tmp_path, compiler)
    code.facts_of(suite, ("gemm/a.cu",), ())
    code.facts_of(suite, ("gemm/a.cu",), ("-DX",))
    (suite / "gemm" / "a.cu").write_text("A2")
    code.facts_of(suite, ("gemm/a.cu",), ())
    assert compiler.asked == ["A", "A", "A2"]


def test_a_source_outside_the_suite_is_not_read(tmp_path, suite):
    (tmp_path / "secret.cu").write_text("token")
    (suite / "link.cu").symlink_to(tmp_path / "secret.cu")
    compiler = Compiler()
    for name in ("../secret.cu", "link.cu", str(tmp_path / "secret.cu"), "gone.cu"):
        assert "cannot be read" in reader(tmp_path, compiler).facts_of(suite, (name,), ())["static_missing"]
    assert compiler.asked == []


def test_the_time_for_compiling_is_bounded_and_what_is_known_is_still_told(tmp_path, suite):
    now = [0.0]

    def slow(message):
        now[0] += 8.0
        return {"ok": True, "facts": FACTS}

    code = reader(tmp_path, Compiler(slow), clock=lambda: now[0], budget_s=10.0)
    assert code.facts_of(suite, ("gemm/a.cu",), ()) == FACTS
    assert code.facts_of(suite, ("gemm/b.cu",), ()) == FACTS
    assert "ran out" in code.facts_of(suite, ("gemm/a.cu", "gemm/b.cu"), ())["static_missing"]
    assert code.facts_of(suite, ("gemm/a.cu",), ()) == FACTS


def test_a_compiler_that_hangs_is_ended_and_nothing_is_kept(tmp_path, suite):
    def hang(message):
        raise ChildTimedOutError("no answer to 'compile' within 120 s")

    compiler = Compiler(hang)
    code = reader(tmp_path, compiler)
    assert "no answer" in code.facts_of(suite, ("gemm/a.cu",), ())["static_missing"]
    assert compiler.closed == 1
    compiler.answer = lambda message: {"ok": True, "facts": FACTS}
    assert code.facts_of(suite, ("gemm/a.cu",), ()) == FACTS


@pytest.mark.parametrize("facts", [None, [], {"a": None}, {"a": True}, {"a": ["x"]}])
def test_what_is_no_fact_is_not_kept(tmp_path, suite, facts):
    code = reader(tmp_path, Compiler(lambda message: {"ok": True, "facts": facts}))
    assert set(code.facts_of(suite, ("gemm/a.cu",), ())) == {"static_missing"}


def test_without_a_compiler_the_reason_is_told(tmp_path, suite):
    code = CudaCode(cache_dir=tmp_path, spawn=Compiler, clock=lambda: 0.0, missing="install the extra")
    assert code.facts_of(suite, ("gemm/a.cu",), ()) == {"static_missing": "install the extra"}
