import pytest

from runners.measure import canary
from service.domain.roofline import (
    CANARY_FLOPS,
    DEVICES,
    Bound,
    canary_device,
    clock_of,
    dtype_of,
    find_device,
    floor_s,
    least_believable_s,
    measured_device,
    ratio_to_control,
    view,
)

DATASHEET_TFLOP_PER_S = {
    "NVIDIA A100": {"bf16": 312, "tf32": 156, "f32": 19.5},
    "NVIDIA H100": {"bf16": 989.4, "fp8": 1979, "tf32": 494.7, "f32": 67},
    "NVIDIA H200": {"bf16": 989.4, "fp8": 1979, "tf32": 494.7, "f32": 67},
    "NVIDIA B200": {"bf16": 2250, "fp8": 4500, "tf32": 1125, "f32": 80},
    "NVIDIA L40S": {"bf16": 362, "fp8": 733, "f32": 91.6},
    "AMD Instinct MI300X": {"bf16": 1307, "fp8": 2615, "tf32": 654, "f32": 163},
}
H100, H200 = (find_device(name) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"))


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_the_formula_gives_the_datasheets_peaks(device):
    figures = DATASHEET_TFLOP_PER_S[device.name]
    for dtype, tflop_per_s in figures.items():
        assert device.peak_flop_per_s(dtype) / 1e12 == pytest.approx(tflop_per_s, rel=0.015), dtype


def test_a_power_capped_clock_lowers_the_roof():
    assert H100.peak_flop_per_s("bf16", 1.41e9) / 1e12 == pytest.approx(762, rel=0.002)


def test_a_device_is_found_by_the_beginning_of_its_name():
    assert H200.name == "NVIDIA H200"
    assert find_device("NVIDIA H200 141GB HBM3e") is H200
    assert find_device("cpu:some processor") is None


@pytest.mark.parametrize(("device", "bound"), [(H200, Bound.COMPUTE), (H100, Bound.MEMORY)])
def test_one_kernel_may_meet_another_roof_on_another_device(device, bound):
    # MLA decode with 128 heads: 235 FLOP/B lies between the ridges of H200 (206) and H100 (295).
    shown = view(1e-3, flops=235e9, size_bytes=1e9, dtype="bf16", device=device)
    assert shown.bound is bound
    assert shown.intensity_flop_per_byte == pytest.approx(235)


def test_a_time_becomes_rates_and_shares():
    flops = 2.0 * 4096**3
    shown = view(200e-6, flops=flops, size_bytes=1e8, dtype="bf16", device=H100, clock_hz=1.41e9)
    assert shown.flop_per_s == pytest.approx(687e12, rel=0.001)
    assert shown.bytes_per_s == pytest.approx(0.5e12)
    assert shown.share_of_datasheet == pytest.approx(687 / 989.4, rel=0.002)
    assert shown.share_at_clock == pytest.approx(687 / 762.3, rel=0.002)
    assert not shown.implausible


def test_faster_than_the_roof_is_an_alarm():
    floor = floor_s(H100, "bf16", flops=1e12, size_bytes=1.0)
    assert view(floor * 0.99, flops=1e12, size_bytes=1.0, dtype="bf16", device=H100).implausible
    assert not view(floor * 1.01, flops=1e12, size_bytes=1.0, dtype="bf16", device=H100).implausible


def test_what_is_not_known_is_none_and_never_zero():
    shown = view(1.0, flops=10.0, size_bytes=0.0, dtype="fp8", device=find_device("NVIDIA A100"))
    assert shown.share_of_datasheet is None
    assert shown.intensity_flop_per_byte is None
    assert shown.bound is None
    assert not shown.implausible


def test_a_processor_is_judged_by_what_its_canaries_reached():
    core = measured_device("cpu:core", flop_per_s=100e9, bytes_per_s=20e9)
    shown = view(1.0, flops=50e9, size_bytes=1e9, dtype="f32", device=core)
    assert shown.share_of_datasheet == pytest.approx(0.5)
    assert shown.bound is Bound.COMPUTE


@pytest.mark.parametrize("time_s", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused(time_s):
    with pytest.raises(ValueError, match="must be positive"):
        view(time_s, flops=1.0, size_bytes=1.0, dtype="f32", device=None)


def test_the_ratio_to_the_control_is_above_one_when_we_are_faster():
    assert ratio_to_control(1.0, 2.0) == 2.0


def test_the_canary_s_work_is_the_one_that_runners_do():
    assert canary.CANARY_FLOPS == CANARY_FLOPS


def test_a_core_is_judged_by_its_canary_with_room_for_what_a_canary_leaves():
    core = canary_device("cpu:core", CANARY_FLOPS / 100e9)
    assert view(1.0, flops=90e9, size_bytes=1e9, dtype="f32", device=core).share_of_datasheet == pytest.approx(0.9)
    assert not view(1.0, flops=110e9, size_bytes=1e9, dtype="f32", device=core).implausible
    assert view(1.0, flops=130e9, size_bytes=1e9, dtype="f32", device=core).implausible


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("gemm_mma_bf16", "bf16"), ("gemm_bf16_cublas", "bf16"), ("gemm_fp8_nvmath", "fp8"), ("sample_f32", "f32")],
)
def test_a_benchmark_says_its_dtype_in_its_name(name, dtype):
    assert dtype_of(name) == dtype
    assert dtype_of("flash_attention") is None


def test_a_clock_is_known_only_when_it_was_locked():
    assert clock_of("1410 MHz") == 1.41e9
    assert clock_of("unlocked") is None


def test_only_what_no_unit_of_the_device_could_do_is_unbelievable():
    fastest = 132 * 4096 * 2 * 1.98e9  # fp8 at the highest clock a datasheet names
    least_s = least_believable_s("NVIDIA H200 141GB HBM3e", flops=fastest, size_bytes=0.0)
    assert least_s is not None
    assert 0.9 < least_s < 1.1
    cached = least_believable_s("NVIDIA H200", flops=1.0, size_bytes=100e6)
    assert cached is not None
    assert cached < 1e-9  # the cache may serve it: memory says nothing
    assert least_believable_s("NVIDIA H200", flops=0.0, size_bytes=4.8e12) == pytest.approx(0.95)
    assert least_believable_s("cpu:AMD EPYC 9454", flops=1e9, size_bytes=1e9) is None
