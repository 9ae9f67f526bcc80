"""Every fault of the measuring side, F1 to F12, with its defence and with exactly that defence taken out.

Each row plants a fault and says what the engine makes of it. With the defence it is not deceived; when the one function
or constant that defends is replaced, it is: so it is that line which protects, and nobody can remove it unnoticed.
The README of `runners` has the table of faults and defences; a test here holds the two together.
"""

from __future__ import annotations

import importlib
import math
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import runners
from runners.device.cuda.nvml import ClockEvent
from runners.measure import correctness
from runners.measure.pairs import Verdict
from runners.measure.protocol import Flag, Steady, block_log_ratio
from runners.measure.team import PREPARE_TIMEOUT_S
from runners.measure.timer import CpuTimer, Launches
from service.contract import MeasurementStatus
from tests.unit.runners.measure import planted
from tests.unit.runners.measure.planted import TRUE_S, point
from tests.unit.runners.measure.scripted import Machine


@dataclass(frozen=True)
class Row:
    """A planted fault, what the engine says of it, what defends, and what the engine says without that."""

    fault: str
    name: str
    told: Callable[[Path], object]  # whether the truth was told
    defence: str  # dotted name
    instead: Any


def near(found_s: float, rel: float = 0.02) -> bool:
    return math.isclose(found_s, TRUE_S, rel_tol=rel)


def flagged(flag: Flag, machine: Callable[[], Machine], **params) -> Callable[[Path], bool]:
    return lambda _tmp: flag in point(machine(), **params).flags


def no_alarm(machine: Callable[[], Machine]) -> Callable[[Path], bool]:
    return lambda _tmp: planted.comparison(machine()).verdict not in {Verdict.REGRESSION, Verdict.IMPROVEMENT}


def lies(lie: dict[str, list[float]]) -> Callable[[Path], bool]:
    return flagged(Flag.IMPLAUSIBLE, lambda: planted.lying(lie), block_s=0.15)


def patched_clock_is_ignored(_tmp: Path) -> bool:
    """A kernel replaces the clock of the `time` module after the timer was made."""
    timer, real = CpuTimer(), (time.perf_counter_ns, time.thread_time_ns)
    time.perf_counter_ns = time.thread_time_ns = lambda: 0
    try:
        return min(timer.time_launches(lambda: sum(range(1000)), count=3, inner=1).wall_s) > 0
    finally:
        time.perf_counter_ns, time.thread_time_ns = real


def found_out(kernel: str) -> Callable[[Path], bool]:
    return lambda tmp: planted.outcome_of(kernel, tmp) != "right"


def board_says(flag: Flag, during: dict[str, Any], **reply) -> Callable[[Path], bool]:
    return lambda tmp: flag in planted.board_flags(during, tmp, **reply)


def without_first_launch(self, prepared, *, count):
    times = self._timer.time_launches(prepared.run, count=count, inner=1)
    return {"wall_s": times.wall_s, "cpu_s": times.cpu_s}


def clocks_looked_up_late(_self, run, *, count, inner):
    wall = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        for _ in range(inner):
            run()
        wall.append((time.perf_counter_ns() - begun) * 1e-9)
    return Launches(tuple(wall), tuple(wall))


def every_block_its_own_process(blocks, clock):
    return {at: block_log_ratio(block, clock) for at, block in enumerate(blocks)}


def another_seed_each_time(team, sha, key, *, proven_hash):
    message = {"op": "prepare", "workload": key, "seed": team.process, "proven_hash": proven_hash}
    return team._ask(sha, message, PREPARE_TIMEOUT_S)


def same_inputs_whatever_the_seed(implementation, axes, *, seed):
    del seed
    return REAL_INPUTS(implementation, axes, seed=0)


REAL_INPUTS = correctness.make_inputs
P, S, T = "runners.measure.protocol", "runners.measure.session", "runners.measure.team"
NO, YES = (lambda *_a, **_k: False), (lambda *_a, **_k: True)

ROWS = [
    Row("F1", "slow first call of a block", lambda _: planted.longest_sample_s() < 0.1,
        "runners.measure.child.CpuStopwatch.block", without_first_launch),
    Row("F2", "clock ramp over 150 ms", lambda _: near(point(planted.ramping()).value_s),
        f"{P}.warm_up", lambda time_one, _spec: Steady(time_one(), settled=True, spent_s=0.0)),
    Row("F3", "slow drift in a comparison", no_alarm(lambda: planted.drifting(0.004)),
        f"{S}.palindrome", lambda entries, _rng: [*entries, *entries]),
    Row("F3", "slow drift in a history point", flagged(Flag.DRIFT, lambda: planted.drifting(0.001)), f"{P}.drifts", NO),
    Row("F3", "slow machine", lambda _: near(point(planted.slowing_with_its_canary()).value_s),
        f"{P}.block_log_ratio", lambda block, _clock: math.log(statistics.median(block.wall_s) / 1e-3)),
    Row("F4", "a mood per process, interval",
        lambda _: planted.relative_half_width(planted.moody(), processes=14) > 0.02,
        f"{P}.process_log_ratios", every_block_its_own_process),
    Row("F4", "a mood per process, flag", flagged(Flag.BIMODAL, planted.moody, processes=14), f"{P}.bimodal", NO),
    Row("F5", "a penalty for whoever runs second", no_alarm(planted.second_is_slower),
        f"{S}.palindrome", lambda entries, _rng: [*entries, *entries]),
    Row("F6", "foreign bursts", lambda _: near(point(planted.bursting(), processes=12).value_s),
        f"{P}.statistics.median", statistics.fmean),
    Row("F7", "throttling", board_says(Flag.THROTTLED, {"events": ClockEvent.HW_THERMAL}),
        "runners.device.cuda.device.events_of", lambda _readings: ClockEvent.NONE),
    Row("F7", "foreign process", board_says(Flag.CONTENDED, {"pids": (4711,)}),
        "runners.device.cuda.device.foreigners", lambda *_a, **_k: set()),
    Row("F7", "hanging call", lambda _: planted.hanging_nvml() == "an error in time",
        "runners.device.cuda.nvml.TimedNvml._call", lambda _self, _name, call: call()),
    Row("F8", "zero", lies({"wall_s": [0.0] * 3, "cpu_s": [0.0] * 3}), f"{P}.usable", YES),
    Row("F8", "negative", lies({"wall_s": [-1e-3] * 3, "cpu_s": [1e-3] * 3}), f"{P}.usable", YES),
    Row("F8", "no records", lies({"wall_s": [], "cpu_s": []}), f"{P}.usable", YES),
    Row("F8", "lost records", lies({"wall_s": [50e-3], "cpu_s": [50e-3]}), f"{T}.lost_records", NO),
    Row("F8", "thousandfold", lies({"wall_s": [5.0] * 3, "cpu_s": [5.0] * 3}), f"{T}.claims_too_much", NO),
    Row("F8", "a millionth", lies({"wall_s": [5e-8] * 3, "cpu_s": [5e-8] * 3}), f"{T}.claims_too_little", NO),
    Row("F9", "environment changes meanwhile",
        lambda _: planted.session(Machine(), planted.Moved()).measurements[0].status is MeasurementStatus.TOO_NOISY,
        "runners.measure.ledger.Ledger.spoil", NO),
    Row("F10", "caches its answer", found_out("caches its answer"),
        "runners.measure.correctness.make_inputs", same_inputs_whatever_the_seed),
    Row("F10", "works while it loads", found_out("works while it loads"),
        "runners.measure.honesty.unchanged", NO),
    Row("F10", "works when it is read", found_out("works when it is read"),
        "runners.measure.honesty.unchanged", NO),
    Row("F10", "returns early", found_out("returns early"), "runners.measure.honesty.leaves_spoilt", NO),
    Row("F10", "patches the clock", patched_clock_is_ignored,
        "runners.measure.timer.CpuTimer.time_launches", clocks_looked_up_late),
    Row("F10", "works after the stop", flagged(Flag.IMPLAUSIBLE, planted.hiding), f"{T}.claims_too_little", NO),
    Row("F10", "faster than possible", flagged(Flag.IMPLAUSIBLE, planted.boasting),
        "runners.measure.ledger.Entry._faster_than_possible", NO),
    Row("F11", "cost depends on the data",
        lambda _: planted.relative_half_width(planted.data_dependent()) < 1e-6,
        f"{T}.Team.prepare", another_seed_each_time),
    Row("F12", "buffers that fit the cache", lambda _: math.isclose(planted.time_though_cold_s(), 30e-6, rel_tol=0.02),
        "runners.device.cuda.plan.rotation_count", lambda _buffer, _l2: 1),
    Row("F12", "too little is touched",
        board_says(Flag.WARM_THOUGH_COLD, {}, working_set_bytes=1 << 20, cold_bytes=100 << 20),
        "runners.device.cuda.device.stays_warm", NO),
]  # fmt: skip


def outcome(row: Row, tmp_path: Path) -> object:
    try:
        return row.told(tmp_path)
    except ValueError:  # a figure that cannot be computed is no truth either
        return False


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.fault} {row.name}")
def test_the_defence_and_nothing_else_protects(row, tmp_path, monkeypatch):
    assert outcome(row, tmp_path)
    monkeypatch.setattr(row.defence, row.instead)
    assert not outcome(row, tmp_path)


@pytest.mark.parametrize("kernel", ["honest", "accumulates", "changes little", "shows nothing before"])
def test_an_honest_kernel_is_not_blamed(kernel, tmp_path):
    assert planted.outcome_of(kernel, tmp_path) == "right"


def test_a_quiet_machine_earns_no_flag():
    assert point(Machine()).flags == ()


def test_every_fault_stands_in_the_table_of_the_readme_with_its_defence_and_a_test():
    table = (Path(runners.__file__).parent / "README.md").read_text()
    rows = re.findall(r"^\| (F\d+) [^|]*\|([^|]*)\|([^|]*)\|$", table, re.MULTILINE)
    assert [fault for fault, _, _ in rows] == [f"F{number}" for number in range(1, 13)]
    said = {fault: set(re.findall(r"`([\w.]+)`", defences)) for fault, defences, _ in rows}
    for row in ROWS:
        assert row.defence.removeprefix("runners.") in said[row.fault], row
    root = Path(runners.__file__).parent.parent
    for _, _, tests in rows:
        for name in re.findall(r"`(tests/[\w/.]+)`", tests):
            assert (root / name).exists(), name


def test_every_defence_in_the_table_exists():
    table = (Path(runners.__file__).parent / "README.md").read_text()
    for dotted in re.findall(r"`((?:measure|device)(?:\.\w+)+)`", table):
        *path, name = f"runners.{dotted}".split(".")
        found: Any = None
        for cut in range(len(path), 0, -1):
            try:
                found = importlib.import_module(".".join(path[:cut]))
            except ModuleNotFoundError:
                continue
            for part in (*path[cut:], name):
                found = getattr(found, part)
            break
        assert found is not None, dotted
