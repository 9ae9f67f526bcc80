"""The static gate on one bf16 GEMM with planted edits: it must see what nvcc 13.0 was seen to make of them."""

import functools
import json
from pathlib import Path

import pytest

from runners.device.cuda.nvrtc import compile_cubin, unavailable
from runners.measure import static_cuda
from runners.survey import reports_of
from service.contract import StaticFinding, static_finding

FIXTURES = Path(__file__).parents[3] / "fixtures" / "static"
SOURCE = (FIXTURES / "gemm_bf16_nt.cu").read_text()
LOOP = "      #pragma unroll\n      for(int i=0;i<4;i++)\n        #pragma unroll\n        for(int j=0;j<4;j++) mma"
EDITS = {
    "comment_only": lambda s: "// x\n" + s,
    "occupancy_4_blocks": lambda s: s.replace("__launch_bounds__(256)", "__launch_bounds__(256,4)"),
    "no_swizzle": lambda s: s.replace("(((c)^((r>>1)&3))<<4)", "((c)<<4)"),
    "two_stages": lambda s: s.replace("#define ST 4", "#define ST 2"),
    "acc_index_not_unrolled": lambda s: s.replace(LOOP, LOOP.replace("unroll", "unroll 1")),
    "extra_syncthreads": lambda s: s.replace("u32 fa[4][4],fb[4][2];", "u32 fa[4][4],fb[4][2]; __syncthreads();"),
    "renamed_plain": lambda s: s.replace("gemm_bf16_nt", "gemm_bf16_nt_renamed"),
    "renamed_cutlass": lambda s: s.replace("gemm_bf16_nt", "gemm_bf16_nt_cutlass"),
}
NVCC_ARCH = {"sm_80": "sm_80", "sm_90": "sm_90a", "sm_100": "sm_100a"}
SEEN = [json.loads(line) for line in (FIXTURES / "nvcc13.0.jsonl").read_text().splitlines()]


@pytest.fixture
def nvrtc():
    missing = unavailable()
    if missing is not None:
        pytest.skip(missing)


@functools.cache
def facts_of(edit):
    source = EDITS[edit](SOURCE) if edit else SOURCE
    assert not edit or source != SOURCE
    return static_cuda.source_facts(source)


def reports(edit):
    about = {"benchmark": "g", "family": "f", "version": 1, "problem": "p", "device": "cuda", "control": False}
    return {report.target: report for report in reports_of("sha", about, facts_of(edit))}


@pytest.mark.parametrize("seen", [s for s in SEEN if s["case"] != "base"], ids=lambda s: f"{s['arch']}-{s['case']}")
def test_every_planted_edit_is_classified_as_the_stored_results_say(nvrtc, seen):
    arch = NVCC_ARCH[seen["arch"]]
    base, head = reports("")[arch], reports(seen["case"])[arch]
    finding = static_finding(base.facts, head.facts, code=(base.code_hash, head.code_hash))
    assert (finding is StaticFinding.SAME) == seen["text_same_as_base"]
    grew = seen["stack"] > 0 or seen["spill_stores"] > 0
    assert (finding is StaticFinding.WARNING) == grew
    assert (head.facts["stack_bytes"] > 0) == (seen["stack"] > 0)
    assert (head.facts["spill_store_bytes"] > 0) == (seen["spill_stores"] > 0)


def test_equal_code_on_every_architecture_has_one_hash(nvrtc):
    assert facts_of("")["code_hash"] == facts_of("comment_only")["code_hash"]
    assert facts_of("")["code_hash"] != facts_of("two_stages")["code_hash"]


def test_a_table_in_constant_memory_is_part_of_the_code(nvrtc):
    source = (
        "__constant__ float table[4] = {1.f, 2.f, 3.f, 4.f};\n"
        'extern "C" __global__ void pick(const int* at, float* y) { y[threadIdx.x] = table[at[threadIdx.x] & 3]; }\n'
    )
    before, after = static_cuda.source_facts(source), static_cuda.source_facts(source.replace("4.f}", "5.f}"))
    assert before["sm_90a.instructions"] == after["sm_90a.instructions"]
    assert before["code_hash"] != after["code_hash"]


def test_the_mix_of_instructions_shows_tensor_cores_and_async_copies(nvrtc):
    mix = static_cuda.instruction_mix(compile_cubin(SOURCE, "sm_80")[0])
    if not mix:
        pytest.skip("nvdisasm is not installed")
    assert mix["tensor"] >= 32
    assert mix["async_copy"] > 0
    assert mix["barrier"] > 0


def test_an_architecture_that_a_source_does_not_support_is_said(nvrtc):
    source = '#if __CUDA_ARCH__ < 900\n#error "needs sm_90"\n#endif\nextern "C" __global__ void k(int *x) { *x = 1; }'
    facts = static_cuda.source_facts(source)
    assert "needs sm_90" in facts["sm_80.error"]
    assert facts["sm_90a.registers"] > 0


@pytest.mark.parametrize(
    ("registers", "shared_bytes", "threads", "share"),
    [(32, 0, 256, 1.0), (64, 0, 256, 0.5), (128, 0, 256, 0.25), (32, 80 << 10, 256, 0.25), (255, 0, 1024, 0.0)],
)
def test_occupancy_follows_the_scarcest_resource(registers, shared_bytes, threads, share):
    found = static_cuda.occupancy(registers=registers, shared_bytes=shared_bytes, threads=threads, arch="sm_90a")
    assert found == share
