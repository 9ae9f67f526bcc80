"""What runs on a real GPU, in one short script: `python -m pytest -m gpu tests/gpu` (a minute)."""

import random
import time
from pathlib import Path

import pytest

from runners.device import open_device
from runners.device.cuda.cupy_events import CupyEvents, GpuCanary
from runners.device.cuda.timer import CudaTimer
from runners.errors import DeviceError
from runners.measure.local_child import LocalChild
from runners.measure.session import Subject, measure_commits
from service.contract import MeasurementStatus, ProtocolParams

pytestmark = pytest.mark.gpu
SUITE = Path(__file__).parents[2] / "kernels_under_test"


@pytest.fixture
def device(tmp_path):
    try:
        return open_device("cuda", state_dir=tmp_path)
    except DeviceError as error:
        pytest.skip(str(error))


def test_the_board_tells_its_facts_and_is_given_back(device):
    with device.taken():
        found = device.environment()
    assert found.facts["gpu_uuid"].startswith("GPU-")
    assert found.facts["power_limit_w"] != "unavailable"


def test_events_agree_with_the_hosts_clock_on_a_long_kernel(device):
    timer = CudaTimer(CupyEvents())
    canary = GpuCanary(timer)
    canary.frame()
    start = time.perf_counter()
    frame = canary.frame()
    assert 0.005 < frame.wall_s < time.perf_counter() - start
    assert canary.copy_frame().wall_s > 0


def test_a_history_point_of_real_kernels(device, tmp_path):
    found = measure_commits(
        [Subject("gpu", SUITE, tmp_path / "build")],
        spawn=lambda _subject, _process: LocalChild(),
        device=device,
        params=ProtocolParams(processes=4, blocks=2, block_s=0.02, budget_s=60.0),
        rng=random.Random(0),
        clock=time.monotonic,
    )
    measured = [m for m in found.measurements if m.status is MeasurementStatus.OK]
    assert measured, [(m.workload, m.status, m.error) for m in found.measurements]
    assert all(m.value_s > 0 for m in measured)
