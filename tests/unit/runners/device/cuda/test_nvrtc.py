"""All CUDA sources compile without a GPU for every target, and their static facts say what a review should see."""

from pathlib import Path

import pytest

from runners.device.cuda.nvrtc import TARGETS, compile_facts, text_sections, unavailable
from runners.errors import BuildError

ROOT = Path(__file__).parents[5] / "kernels_under_test"
SOURCES = sorted(ROOT.rglob("*.cu"))
SMALL = 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2.0f * x[threadIdx.x]; }\n'


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _toolchain():
    reason = unavailable()
    if reason is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_source_compiles_for_every_target_without_spills(source):
    for target in TARGETS:
        facts = compile_facts(source.read_text(), target)
        assert facts
        for kernel in facts:
            assert kernel.instructions > 0
            assert kernel.shared_bytes <= 48 * 1024
            assert (kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.stack_bytes) == (0, 0, 0), kernel


def test_a_comment_changes_nothing_and_an_edit_changes_the_code():
    (before,) = compile_facts(SMALL, "sm_90a")
    (commented,) = compile_facts("// a comment\n" + SMALL, "sm_90a")
    (edited,) = compile_facts(SMALL.replace("2.0f", "3.0f"), "sm_90a")
    assert commented == before
    assert edited.code_hash != before.code_hash


def test_a_dynamically_indexed_array_shows_as_stack():
    source = (
        'extern "C" __global__ void pick(const int* at, float* y) {\n'
        "  float held[64];\n  for (int i = 0; i < 64; i++) held[i] = y[i];\n"
        "  for (int i = 0; i < 64; i++) held[at[i] & 63] *= 2.0f;\n"
        "  for (int i = 0; i < 64; i++) y[i] = held[i];\n}\n"
    )
    (facts,) = compile_facts(source, "sm_90a")
    assert facts.stack_bytes >= 256


def test_a_compile_error_carries_the_compilers_words():
    with pytest.raises(BuildError, match="undeclared_thing"):
        compile_facts(SMALL.replace("x[threadIdx.x]", "undeclared_thing"), "sm_80")


def test_something_else_than_a_cubin_is_refused():
    with pytest.raises(BuildError, match="not a 64-bit ELF file"):
        text_sections(b"PTX is text")
