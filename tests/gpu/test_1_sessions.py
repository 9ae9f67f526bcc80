"""A real GPU, watched and measured from outside, as a runner does it: this process never opens CUDA itself.

    python -m pytest tests/gpu [--lock-clock]

This file comes first: in a container, the next one would make this process a stranger to its own runner.
"""

import functools
import random
import time
from pathlib import Path

import pytest

from runners.device.cuda.clock import ClockLock, highest_clock_that_holds
from runners.device.cuda.load import tensor_load
from runners.device.cuda.nvml import RealNvml, TimedNvml
from runners.measure.comparison import compare
from runners.measure.local_child import LocalChild
from runners.measure.pairs import Verdict
from runners.measure.protocol import Flag
from runners.measure.session import Subject, measure_commits
from runners.measure.team import ModuleSubject
from runners.sandbox import Access, Limits, spawn
from service.contract import MeasurementStatus, ProtocolParams

pytestmark = pytest.mark.gpu
SUITE = Path(__file__).parents[2] / "kernels_under_test"
SPIN = Path(__file__).with_name("spin.py")
WARM, COLD = "rmsnorm_bf16_cuda[cols=4096,rows=64]", "rmsnorm_bf16_cuda[cols=4096,rows=64]@cold"
GEMM = "gemm_mma_bf16[k=4096,m=64,n=6144]"


def test_the_board_tells_its_facts_and_is_watched(device):
    with device.taken():
        facts = device.environment().facts
        time.sleep(0.5)
        first, last = device.look(0), device.look(0)
    assert facts["gpu_uuid"].startswith("GPU-"), facts
    assert facts["power_limit_w"] != "unavailable", facts
    assert facts["clock"] == "unlocked"
    assert first.readings["at"] >= 4, "NVML answers more slowly than five times a second"
    assert device.judge(first, last, {}) == ()


def test_the_board_can_be_put_to_work_and_nvml_sees_it(device):
    nvml = TimedNvml(RealNvml(0))
    idle_w = nvml.read().power_w
    busy = [nvml.read() for _ in tensor_load(device.gpu_uuid, 3.0)]
    assert len(busy) > 20
    assert busy[-1].power_w > idle_w + 50, f"{idle_w:.0f} W idle, {busy[-1].power_w:.0f} W at work"


def test_a_lock_holds_under_load_and_is_given_back(device, tmp_path, request):
    if not request.config.getoption("--lock-clock"):
        pytest.skip("not asked to touch the clock: --lock-clock")
    nvml = TimedNvml(RealNvml(0))
    load = functools.partial(tensor_load, device.gpu_uuid)
    found = highest_clock_that_holds(ClockLock(nvml, tmp_path / "locked"), load, probe_s=1.0, hold_s=5.0)
    if found is None:
        pytest.skip("this user may not lock the clock, or the board holds none: sessions are unlocked")
    lock = ClockLock(nvml, tmp_path / "locked")
    wanted = min(nvml.supported_sm_clocks_mhz(), key=lambda mhz: abs(mhz - 0.6 * found))
    try:
        assert lock.take(wanted)
        held = [nvml.read().sm_clock_mhz for _ in load(2.0)]
    finally:
        lock.give_back()
    assert max(held) <= wanted * 1.01, held
    assert min(held[-10:]) >= wanted * 0.99, held
    after = [nvml.read().sm_clock_mhz for _ in load(2.0)]
    assert max(after) > wanted * 1.05, f"still at {max(after)} MHz after the lock of {wanted} MHz was given back"
    assert not (tmp_path / "locked").exists()


def test_history_points_of_real_kernels_warm_and_cold(device, tmp_path):
    found = measure_commits(
        [Subject("gpu", SUITE, tmp_path / "build")],
        spawn=lambda _subject, _process: LocalChild(),
        device=device,
        params=ProtocolParams(processes=3, blocks=2, block_s=0.02, target_half_width=-1.0, budget_s=120.0),
        workloads=(WARM, COLD, GEMM),
        rng=random.Random(0),
        clock=time.monotonic,
    )
    assert found.commit_failures == ()
    points = {m.workload: m for m in found.measurements}
    assert {m.status for m in points.values()} == {MeasurementStatus.OK}, [
        (m.workload, m.error) for m in found.measurements
    ]
    for point in points.values():
        assert point.static["fact.method"] == "graph", point.static
        assert point.static["fact.code"] in {"cubin", "ptx"}
        assert point.static["fact.symbol"] in str(point.static["fact.symbols"])
        assert Flag.IMPLAUSIBLE not in point.flags, point.flags
        assert Flag.HOST_BOUND not in point.flags, point.flags
    assert (points[WARM].metric, points[COLD].metric) == ("time", "time_cold")
    assert points[COLD].value_s > points[WARM].value_s
    assert 15e-3 / 64 < found.canary_wall_s < 0.5
    assert found.launch_canary_s < 50e-6 < found.copy_canary_s < 50e-3


def compared(device, slow_a, slow_b):
    found = compare(
        ModuleSubject("a" * 40, SPIN, "spin", slow_a),
        ModuleSubject("b" * 40, SPIN, "spin", slow_b),
        spawn=lambda _subject, _process: LocalChild(),
        device=device,
        params=ProtocolParams(processes=10, blocks=2, block_s=0.02, budget_s=90.0),
        floor=0.01,
        audit_share=1.0,
        rng=random.Random(3),
        clock=time.monotonic,
    )
    assert found.failures == ()
    return found.comparisons[0]


def test_two_equal_kernels_are_the_same(device):
    found = compared(device, 0.0, 0.0)
    assert found.verdict is Verdict.SAME, (found.verdict, found.reason, found.look, found.flags)


def test_five_percent_is_a_regression_of_five_percent(device):
    found = compared(device, 0.0, 5.0)
    assert found.verdict is Verdict.REGRESSION, (found.verdict, found.reason, found.look, found.flags)
    assert found.look.ratio == pytest.approx(1.05, abs=0.01)


def test_a_locked_in_child_can_open_the_board(device, tmp_path):
    """The sandbox of a runner must let CUDA through; a failure here says which wall is in the way."""
    build = tmp_path / "build"
    build.mkdir()
    child = spawn(
        access=Access(read=(SUITE,), write=(build,), devices=tuple(Path("/dev").glob("nvidia*"))),
        limits=Limits(address_space_bytes=None, data_bytes=32 << 30),
        scratch_root=tmp_path / "scratch",
    )
    try:
        hello = {"op": "hello", "suite_dir": str(SUITE), "build_dir": str(build), "device": "cuda", **device.hello()}
        reply = child.request(hello, timeout_s=120)
        assert reply["ok"], reply
        prepared = child.request({"op": "prepare", "workload": WARM, "seed": 1, "proven_hash": None}, timeout_s=120)
        assert prepared["ok"], prepared
    finally:
        child.close()
