"""The CUDA device against a scripted NVML and scripted events: fault F7, and the timing rules of a GPU."""

import threading
from dataclasses import dataclass, field, replace

import pytest

from runners.device import open_device
from runners.device.cuda.device import CudaDevice, highest_clock_that_holds
from runners.device.cuda.nvml import ClockEvent, GpuReading, TimedNvml
from runners.device.cuda.timer import CudaTimer, launches_per_sample, rotation_count
from runners.errors import DeviceError
from runners.measure.protocol import Flag

IDLE = GpuReading(1500, 2600, 300.0, 50, ClockEvent.NONE, 0, ())
FACTS = {"gpu_model": "NVIDIA H200", "gpu_uuid": "GPU-1", "driver": "580.1", "power_limit_w": "700.0"}


@dataclass
class ScriptedNvml:
    now: GpuReading = IDLE
    found: dict = field(default_factory=lambda: dict(FACTS))
    clocks: tuple = (1980, 1830, 1500)
    may_lock: bool = True
    locked: list = field(default_factory=list)
    cap_above_mhz: int = 10_000

    def facts(self):
        return dict(self.found)

    def read(self):
        if self.locked and self.locked[-1] is not None:
            over = self.locked[-1] > self.cap_above_mhz
            clock = min(self.locked[-1], self.cap_above_mhz)
            return replace(self.now, sm_clock_mhz=clock, events=ClockEvent.SW_POWER_CAP if over else self.now.events)
        return self.now

    def supported_sm_clocks_mhz(self):
        return self.clocks

    def lock_sm_clock(self, mhz):
        if not self.may_lock:
            raise PermissionError
        self.locked.append(mhz)

    def unlock_sm_clock(self):
        self.locked.append(None)


def device_on(nvml, tmp_path, **more):
    return CudaDevice(nvml=nvml, state_dir=tmp_path, **more)


def block_flags(nvml, tmp_path, during, reply=None, **more):
    device = device_on(nvml, tmp_path, **more)
    with device.taken():
        before = device.look(1)
        quiet, nvml.now = nvml.now, during
        after = device.look(1)
        nvml.now = quiet
        return device.judge(before, after, reply or {})


@pytest.mark.parametrize(
    ("during", "flag"),
    [
        (replace(IDLE, events=ClockEvent.HW_THERMAL), Flag.THROTTLED),
        (replace(IDLE, events=ClockEvent.HW_SLOWDOWN), Flag.THROTTLED),
        (replace(IDLE, events=ClockEvent.SW_POWER_CAP), Flag.POWER_CAPPED),
        (replace(IDLE, pids=(4711,)), Flag.CONTENDED),
    ],
    ids=str,
)
def test_what_the_board_shows_during_a_block_is_flagged(tmp_path, during, flag):
    assert block_flags(ScriptedNvml(), tmp_path, during) == (flag,)


def test_a_quiet_block_has_no_flags(tmp_path):
    assert block_flags(ScriptedNvml(), tmp_path, IDLE) == ()


def test_a_locked_clock_that_sinks_is_flagged(tmp_path):
    nvml = ScriptedNvml(cap_above_mhz=1400)
    assert Flag.CLOCK_NOT_HELD in block_flags(nvml, tmp_path, IDLE, wanted_mhz=1500)


def test_host_bound_and_warm_though_cold_are_said(tmp_path):
    reply = {"host_bound": 3, "working_set_bytes": 1 << 20, "cold_bytes": 100 << 20}
    assert block_flags(ScriptedNvml(), tmp_path, IDLE, reply) == (Flag.HOST_BOUND, Flag.WARM_THOUGH_COLD)


def test_uncorrectable_memory_errors_end_the_session(tmp_path):
    with pytest.raises(DeviceError, match="memory errors"):
        block_flags(ScriptedNvml(), tmp_path, replace(IDLE, ecc_uncorrected=1))


def test_a_foreign_process_on_the_board_refuses_the_session(tmp_path):
    device = device_on(ScriptedNvml(now=replace(IDLE, pids=(4711,))), tmp_path)
    with pytest.raises(DeviceError, match="4711"), device.taken():
        pass


def test_our_own_children_are_no_foreigners(tmp_path):
    nvml = ScriptedNvml()
    device = device_on(nvml, tmp_path)
    with device.taken():
        device.hold(77, threads=1)
        before = device.look(77)
        nvml.now = replace(IDLE, pids=(77,))
        assert device.judge(before, device.look(77), {}) == ()


def test_two_runners_never_share_a_board(tmp_path):
    one, other = device_on(ScriptedNvml(), tmp_path), device_on(ScriptedNvml(), tmp_path)
    with one.taken(), pytest.raises(DeviceError, match="another runner"), other.taken():
        pass


def test_the_clock_is_locked_for_the_session_and_given_back_even_after_an_error(tmp_path):
    nvml = ScriptedNvml()
    device = device_on(nvml, tmp_path, wanted_mhz=1500)
    seen = []

    def session():
        with device.taken():
            seen.extend([*nvml.locked, device.environment().facts["clock"]])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        session()
    assert seen == [1500, "1500 MHz"]
    assert nvml.locked == [1500, None]
    assert list(tmp_path.glob("gpu_clock_locked")) == []


def test_a_lock_left_by_a_crash_is_undone_at_the_next_start(tmp_path):
    (tmp_path / "gpu_clock_locked").write_text("1500\n")
    nvml = ScriptedNvml()
    device_on(nvml, tmp_path)
    assert nvml.locked == [None]


def test_without_the_right_to_lock_the_environment_says_unlocked(tmp_path):
    nvml = ScriptedNvml(may_lock=False)
    device = device_on(nvml, tmp_path, wanted_mhz=1500)
    with device.taken():
        assert device.environment().facts["clock"] == "unlocked"
        assert device.hold(1, threads=1) == (Flag.CLOCK_NOT_HELD,)
    assert nvml.locked == []


@pytest.mark.parametrize("fact", ["gpu_uuid", "driver", "power_limit_w"])
def test_a_changed_fact_is_another_environment(tmp_path, fact):
    before = device_on(ScriptedNvml(), tmp_path).environment()
    after = device_on(ScriptedNvml(found={**FACTS, fact: "other"}), tmp_path).environment()
    assert before.comparable_key != after.comparable_key


def test_a_hanging_nvml_call_is_an_error_within_its_time(tmp_path):
    release = threading.Event()

    class Hanging(ScriptedNvml):
        def read(self):
            release.wait(10)
            return IDLE

    try:
        with pytest.raises(DeviceError, match="did not answer"):
            TimedNvml(Hanging(), timeout_s=0.05).read()
    finally:
        release.set()


def test_a_poller_that_lost_nvml_stops_the_session(tmp_path):
    class Gone(ScriptedNvml):
        gone = False

        def read(self):
            if self.gone:
                raise DeviceError("NVML did not answer 'read' within 2 s")
            return IDLE

    nvml = Gone()
    device = device_on(nvml, tmp_path)
    with device.taken():
        nvml.gone = True
        with pytest.raises(DeviceError, match="did not answer"):
            device.look(1)


def test_the_highest_clock_that_holds_under_load_is_found_and_given_back():
    nvml = ScriptedNvml(cap_above_mhz=1600)
    assert highest_clock_that_holds(nvml, lambda: iter([None] * 5)) == 1500
    assert nvml.locked[-1] is None
    assert highest_clock_that_holds(ScriptedNvml(may_lock=False), lambda: iter([None])) is None


def test_without_a_gpu_it_is_said_plainly(tmp_path):
    try:
        open_device("cuda", state_dir=tmp_path)
    except DeviceError as error:
        said = str(error)
    else:
        pytest.skip("there is a GPU here")
    assert "NVIDIA device" in said


class ScriptedEvents:
    """A device and a host clock; the host queues, the device runs behind."""

    def __init__(self, kernel_s, launch_cost_s=5e-6):
        self.kernel_s, self.launch_cost_s = kernel_s, launch_cost_s
        self.host, self.device = 0.0, 0.0
        self.flushed = []

    def _queue(self, seconds):
        self.host += 1e-6
        self.device = max(self.device, self.host) + seconds

    def delay(self, seconds):
        self._queue(seconds)

    def launch(self):
        self.host += self.launch_cost_s
        self._queue(self.kernel_s)

    def record(self):
        self._queue(0.0)
        return self.device

    def elapsed_s(self, start, stop):
        self.host = max(self.host, stop)
        return stop - start

    def passed(self, event):
        return event <= self.host

    def flush_l2(self, size_bytes):
        self.flushed.append(size_bytes)

    def host_s(self):
        return self.host


def test_behind_the_delay_a_short_kernel_is_timed_without_the_hosts_pauses():
    events = ScriptedEvents(kernel_s=2e-6, launch_cost_s=5e-6)
    timer = CudaTimer(events)
    launches = timer.time_launches(events.launch, count=3, inner=20)
    assert launches.wall_s == pytest.approx([2e-6] * 3)
    assert timer.host_bound == 0


def test_a_host_that_falls_behind_is_seen():
    events = ScriptedEvents(kernel_s=2e-6, launch_cost_s=50e-6)
    timer = CudaTimer(events)
    timer.time_launches(events.launch, count=3, inner=20)
    assert timer.host_bound == 3


def test_a_cold_sample_flushes_before_each_and_a_warm_one_never():
    events = ScriptedEvents(kernel_s=1e-3)
    CudaTimer(events, flush_bytes=100).time_launches(events.launch, count=3, inner=1)
    assert events.flushed == [100, 100, 100]
    warm = ScriptedEvents(kernel_s=1e-3)
    CudaTimer(warm).time_launches(warm.launch, count=3, inner=1)
    assert warm.flushed == []


@pytest.mark.parametrize(("launch_s", "launches"), [(1e-3, 1), (5e-6, 10), (0.0, 1000), (float("nan"), 1000)])
def test_a_sample_is_long_against_the_events_resolution(launch_s, launches):
    assert launches_per_sample(launch_s) == launches


@pytest.mark.parametrize(("buffer_bytes", "copies"), [(10 << 20, 25), (1 << 30, 1), (0, 1)])
def test_small_buffers_are_rotated_until_they_exceed_the_cache(buffer_bytes, copies):
    assert rotation_count(buffer_bytes, 50 << 20) == copies
