"""The CUDA device against a scripted NVML: fault F7."""

import threading
from dataclasses import replace

import pytest

from runners.device import open_device
from runners.device.cuda.device import CudaDevice, family_of, foreigners, visible_board
from runners.device.cuda.nvml import ClockEvent, TimedNvml
from runners.device.cuda.poller import Poller
from runners.errors import DeviceError
from runners.measure.protocol import Flag
from tests.unit.runners.device.cuda.scripted import FACTS, IDLE, ScriptedNvml


def device_on(nvml, tmp_path, **more):
    return CudaDevice(nvml=nvml, state_dir=tmp_path, **{"pause": lambda _s: None, **more})


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


def test_a_process_that_was_killed_is_given_time_to_leave_the_board(tmp_path):
    nvml = ScriptedNvml(now=replace(IDLE, pids=(4711,)))
    pauses = []

    def leave(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            nvml.now = IDLE

    with device_on(nvml, tmp_path, pause=leave).taken():
        assert len(pauses) == 3


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


def test_without_a_gpu_it_is_said_plainly(tmp_path):
    try:
        open_device("cuda", state_dir=tmp_path)
    except DeviceError as error:
        said = str(error)
    else:
        pytest.skip("there is a GPU here")
    assert "NVIDIA device" in said


def test_a_lock_of_a_runner_that_is_alive_is_left_alone(tmp_path):
    alive = ScriptedNvml()
    device = device_on(alive, tmp_path, wanted_mhz=1500)
    with device.taken():
        beside = ScriptedNvml()
        device_on(beside, tmp_path)
        assert beside.locked == []
        assert (tmp_path / "gpu_clock_locked").exists()


def test_a_user_who_may_not_unlock_leaves_a_forgotten_lock_to_one_who_may(tmp_path):
    class Unprivileged(ScriptedNvml):
        def unlock_sm_clock(self):
            raise PermissionError

    (tmp_path / "gpu_clock_locked").write_text("1500\n")
    device_on(Unprivileged(), tmp_path)
    assert (tmp_path / "gpu_clock_locked").exists()


def test_a_child_is_told_which_board_to_open(tmp_path):
    assert device_on(ScriptedNvml(), tmp_path).hello() == {"gpu_uuid": "GPU-1"}


@pytest.mark.parametrize(
    ("visible", "board"), [(None, 0), ("", 0), ("2,3", 2), ("GPU-8a1b, GPU-9c", "GPU-8a1b"), ("MIG-1", "MIG-1")]
)
def test_the_board_is_the_first_that_cuda_may_use(visible, board):
    assert visible_board(visible) == board


@pytest.mark.parametrize(
    ("seen", "children", "strange"),
    [
        ((77, 4711), 1, {4711}),
        ((90001,), 1, set()),  # our child under the number that the host knows it by
        ((90001, 90002), 1, {90001, 90002}),
        ((77,), 1, set()),
        ((4711,), 0, {4711}),
    ],
)
def test_strangers_are_told_from_own_children_even_when_a_container_renumbers_them(seen, children, strange):
    assert foreigners(seen, {1, 77}, children=children) == strange


def test_a_grandchild_in_a_sandbox_belongs_to_the_family(tmp_path):
    for pid, children in ((10, "11 12"), (11, ""), (12, "13"), (13, "")):
        task = tmp_path / str(pid) / "task" / str(pid)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
    assert family_of(10, tmp_path) == {10, 11, 12, 13}


@pytest.mark.parametrize(
    ("clocks", "stood"), [((900, 1500, 1500, 1500, 1500), True), ((1500, 1500, 1400, 1500), False)]
)
def test_a_warm_up_is_over_when_the_last_clocks_agree(tmp_path, clocks, stood):
    nvml = ScriptedNvml()
    device = device_on(nvml, tmp_path)
    looks = []
    for clock in clocks:
        nvml.now = replace(IDLE, sm_clock_mhz=clock)
        looks.append(device.look(1))
    assert device.clock_stood(looks[0], looks[-1]) is stood


def test_whatever_nvml_raises_is_a_device_error():
    class Broken(ScriptedNvml):
        def read(self):
            raise RuntimeError("GPU is lost")

    with pytest.raises(DeviceError, match="GPU is lost"):
        TimedNvml(Broken()).read()


def test_what_the_board_says_of_its_health_is_told_once(tmp_path):
    nvml = ScriptedNvml(now=replace(IDLE, xid_errors=3))
    device = device_on(nvml, tmp_path)
    assert device.health().xid_errors == 0
    with device.taken():
        device.look(1)
    assert device.health().xid_errors == 3
    assert device.health().xid_errors == 0
    nvml.now = replace(IDLE, ecc_uncorrected=2, xid_errors=4)
    with device.taken():
        device.look(1)
    told = device.health()
    assert (told.ecc_uncorrected, told.xid_errors) == (2, 1)


def test_an_nvml_that_hangs_is_part_of_the_boards_health():
    seconds = iter([10.0, 12.5, 20.0, 20.1])
    poller = Poller(ScriptedNvml(), clock=lambda: next(seconds))
    poller.poll()
    poller.poll()
    assert poller.slowest_s == 2.5
