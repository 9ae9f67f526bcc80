"""The clock lock: found under load, remembered per board, always given back."""

import pytest

from runners.device.cuda import tune
from runners.device.cuda.clock import HOLD_S, HOLDS_MAX, PROBE_S, ClockLock, KnownClocks, highest_clock_that_holds
from runners.device.cuda.device import KNOWN_CLOCKS, CudaDevice
from runners.device.cuda.load import tensor_load
from runners.errors import DeviceError
from tests.unit.runners.device.cuda.scripted import ScriptedNvml

CLOCKS = tuple(range(345, 1981, 15))


class Board(ScriptedNvml):
    """Counts the seconds of load; a clock over `hot_above_mhz` holds at first and not for long."""

    def __init__(self, *, hot_above_mhz=10_000, **more):
        super().__init__(clocks=CLOCKS, **more)
        self.hot_above_mhz = hot_above_mhz
        self.cold_cap_mhz = self.cap_above_mhz
        self.loads = []

    def load(self, seconds):
        self.loads.append(seconds)
        self.cap_above_mhz = min(self.cold_cap_mhz, self.hot_above_mhz if seconds > PROBE_S else 10_000)
        yield from [None] * 3


def searched(board, tmp_path):
    return highest_clock_that_holds(ClockLock(board, tmp_path / "locked"), board.load)


@pytest.mark.parametrize("cap_mhz", [1980, 1830, 1507, 345])
def test_the_highest_clock_that_holds_is_found_in_few_looks_and_given_back(tmp_path, cap_mhz):
    board = Board(cap_above_mhz=cap_mhz)
    found = searched(board, tmp_path)
    assert found == max(clock for clock in CLOCKS if clock <= cap_mhz)
    assert board.loads.count(HOLD_S) == 1
    assert len(board.loads) <= 9
    assert board.locked[-1] is None
    assert list(tmp_path.iterdir()) == []


def test_a_clock_that_holds_only_while_the_board_is_cool_is_not_taken(tmp_path):
    board = Board(cap_above_mhz=1830, hot_above_mhz=1750)
    found = searched(board, tmp_path)
    assert 1700 < found <= 1750


def test_the_search_is_bounded_when_nothing_holds_for_long(tmp_path):
    board = Board(hot_above_mhz=300)
    assert searched(board, tmp_path) is None
    assert board.loads.count(HOLD_S) == HOLDS_MAX
    assert board.locked[-1] is None


def test_a_board_that_throttles_or_gives_no_reading_holds_nothing(tmp_path):
    board = Board()
    board.load = lambda _seconds: iter(())
    assert searched(board, tmp_path) is None


def test_a_user_who_may_not_lock_gets_no_clock_and_leaves_nothing_behind(tmp_path):
    board = Board(may_lock=False)
    assert searched(board, tmp_path) is None
    assert board.locked == []
    assert list(tmp_path.iterdir()) == []


def test_a_crash_during_the_search_leaves_the_marker_that_undoes_it(tmp_path):
    board = Board()
    marker = tmp_path / "locked"

    class KilledError(BaseException):
        pass

    class Dying(ClockLock):
        def give_back(self):
            raise KilledError

    def killed(_seconds):
        raise KilledError
        yield

    with pytest.raises(KilledError):
        highest_clock_that_holds(Dying(board, marker), killed)
    assert marker.exists()
    assert ClockLock(board, marker).undo_forgotten()
    assert board.locked[-1] is None
    assert not marker.exists()


def test_clocks_are_remembered_per_board(tmp_path):
    known = KnownClocks(tmp_path / "state" / "gpu_clocks.json")
    assert known.of("GPU-1") is None
    known.remember("GPU-1", 1500)
    known.remember("GPU-2", 1710)
    assert (known.of("GPU-1"), known.of("GPU-2")) == (1500, 1710)
    known.remember("GPU-1", None)
    assert (known.of("GPU-1"), known.of("GPU-2")) == (None, 1710)


def test_the_clock_that_holds_is_kept_for_later_sessions_and_forgotten_when_asked(tmp_path):
    board = Board(cap_above_mhz=1507)
    device = CudaDevice(nvml=board, state_dir=tmp_path)
    assert device.find_clock(board.load) == 1500
    assert board.locked[-1] is None
    with device.taken():
        assert device.environment().facts["clock"] == "1500 MHz"
    known = KnownClocks(tmp_path / KNOWN_CLOCKS)
    assert known.of("GPU-1") == 1500
    assert tune.clock_advice(tmp_path, "GPU-1") == "sessions lock its SM clock at 1500 MHz"
    assert device.forget_clock() == 1500
    assert known.of("GPU-1") is None
    with device.taken():
        assert device.environment().facts["clock"] == "unlocked"


def test_what_tuning_found_is_told_in_a_sentence(tmp_path, monkeypatch):
    def told(board, load):
        monkeypatch.setattr(tune, "tensor_load", lambda _uuid, seconds: load(seconds))
        return tune.find(CudaDevice(nvml=board, state_dir=tmp_path))

    board = Board(cap_above_mhz=1507)
    assert "1500 MHz, which it held for 60 s" in told(board, board.load)
    refused = Board(may_lock=False)
    assert "stays unlocked" in told(refused, refused.load)

    def cannot_start(_seconds):
        raise DeviceError("the GPU cannot be put to work: no libnvrtc")
        yield

    assert "not looked for: the GPU cannot be put to work" in told(Board(), cannot_start)


def test_a_load_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    with pytest.raises(DeviceError, match="the GPU cannot be put to work"):
        next(tensor_load("GPU-none", 0.1))
