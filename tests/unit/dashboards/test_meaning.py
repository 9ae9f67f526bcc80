"""What stands beside a time on the page of a series."""

import pytest

from dashboards import formats
from dashboards.meaning import meaning
from service.domain.mixes import load_mixes
from service.domain.roofline import CANARY_FLOPS

GEMM = {"flops": 2.0 * 4096**3, "size_bytes": 3 * 2.0 * 4096**2}


def lines(found):
    return {label: words.replace(formats.THIN, " ") for label, words in found.lines}


def test_a_gpu_is_judged_by_its_datasheet_and_at_its_locked_clock():
    found = meaning(
        benchmark="gemm_mma_bf16", value_s=200e-6, device="NVIDIA H100 80GB HBM3", facts={"clock": "1410 MHz"},
        control_s=180e-6, **GEMM,
    )  # fmt: skip
    assert lines(found) == {
        "rate": "687.2 TFLOP/s",
        "traffic": "503.3 GB/s",
        "arithmetic intensity": "1 365 FLOP/B",
        "bound by": "compute",
        "share of the datasheet's roof": "69.5 %",
        "share at the locked clock": "90.1 %",
        "times as fast as the control": "0.90",
    }
    assert found.alarm is None


def test_a_core_is_judged_by_its_canary():
    found = meaning(
        benchmark="gemm_f32", flops=50e9, size_bytes=1e9, value_s=1.0, device="cpu:some model",
        facts={"canary_reference_s": repr(CANARY_FLOPS / 100e9)},
    )  # fmt: skip
    assert lines(found)["share of the canary's rate"] == "50.0 %"
    assert {"share at the locked clock", "bound by"}.isdisjoint(lines(found))


def test_a_copy_on_a_gpu_is_judged_by_its_bandwidth():
    found = meaning(
        benchmark="kv_gather_bf16", flops=0.0, size_bytes=2.4e9, value_s=1e-3, device="NVIDIA H200", facts={}
    )
    assert lines(found) == {"traffic": "2.400 TB/s", "bound by": "memory", "share of the datasheet's roof": "50.0 %"}


@pytest.mark.parametrize(
    ("device", "facts"),
    [("NVIDIA H100", {"clock": "unlocked"}), ("cpu:core", {"canary_reference_s": repr(CANARY_FLOPS / 100e9)})],
)
def test_faster_than_the_device_could_be_is_an_alarm_and_not_a_record(device, facts):
    found = meaning(benchmark="gemm_f32", flops=200e12, size_bytes=1e6, value_s=1.0, device=device, facts=facts)
    assert "faster than the device could" in found.alarm


def test_what_is_not_known_has_no_line():
    copy = meaning(benchmark="kv_gather_f32", flops=0.0, size_bytes=1e9, value_s=1.0, device="cpu:core", facts={})
    assert set(lines(copy)) == {"traffic"}
    strange = meaning(benchmark="attention", flops=1e9, size_bytes=1e9, value_s=1.0, device="NVIDIA H100", facts={})
    assert not any("share" in label for label in lines(strange))


def test_a_kernel_of_a_model_s_step_says_how_often_it_runs_there_and_for_how_long():
    found = meaning(
        benchmark="gemm_skinny_bf16_cuda", flops=1.0, size_bytes=1.0, value_s=50e-6, device="NVIDIA H200", facts={},
        problem_key="gemm[k=4096,m=64,n=6144]", steps=load_mixes(),
    )  # fmt: skip
    steps = [words.replace(formats.THIN, " ") for label, words in found.lines if label == "in a model's step"]
    assert steps == ["Llama-3-8B decode, batch 64, 1K context: 32 launches, 1.600 ms"]
