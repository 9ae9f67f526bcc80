"""Faults F1 to F12: each is planted in a scripted machine, and the engine must not be deceived.

F2 (clock ramp) and F5 (penalty for the second) are also tested where their rule lives; F7 is in device/test_cuda.py.
"""

import json
import random
from pathlib import Path

import pytest

from runners.errors import ChildTimedOutError
from runners.measure.child import Server
from runners.measure.comparison import compare
from runners.measure.pairs import Verdict
from runners.measure.protocol import Flag
from runners.measure.session import measure_commits
from runners.measure.team import Subject
from runners.measure.timer import CpuTimer
from service.contract import MeasurementStatus, ProtocolParams
from tests.unit.runners.measure.scripted import CANARY_S, Machine, QuietDevice

A = Subject("a" * 40, Path("/suite-a"), Path("/build"))
B = Subject("b" * 40, Path("/suite-b"), Path("/build"))


def point(machine, **params):
    params = {"processes": 8, "blocks": 3, "target_half_width": -1.0, "budget_s": 1e9, **params}
    found = measure_commits(
        [A],
        spawn=machine.spawn,
        device=QuietDevice(),
        params=ProtocolParams(**params),
        rng=random.Random(0),
        clock=machine.clock,
    )
    return found.measurements[0]


def verdict(machine, *, processes=20):
    def different(child, message, reply):
        if message["op"] == "static":
            return {"ok": True, "static": {"code_hash": child.sha, "recipe_hash": "r"}}
        return machine_answer(child, message, reply)

    machine_answer, machine.answer = machine.answer, different
    result = compare(
        A,
        B,
        spawn=machine.spawn,
        device=QuietDevice(),
        params=ProtocolParams(processes=processes, blocks=3, block_s=0.02, budget_s=1e9),
        floor=0.01,
        audit_share=0.0,
        rng=random.Random(3),
        clock=machine.clock,
    )
    return result.comparisons[0]


def test_f1_a_slow_first_call_is_in_no_sample():
    found = point(Machine(kernel=lambda _child, launch: 0.5 if launch == 0 else 5e-3))
    assert max(s for b in found.blocks for s in b.wall_s) == pytest.approx(5e-3)
    assert found.value_s == pytest.approx(5e-3)


def test_f2_a_clock_ramp_after_start_is_waited_out():
    machine = Machine()
    started = {}

    def ramp(child, _launch):
        begun_s = started.setdefault(child.pid, machine.now_s)
        return 5e-3 * (1 + max(0.0, 1 - (machine.now_s - begun_s) / 0.150))

    machine.kernel = ramp
    found = point(machine)
    assert found.value_s == pytest.approx(5e-3, rel=0.02)


def test_f3_a_slow_drift_is_flagged_in_a_point_and_cancels_in_a_comparison():
    machine = Machine()
    machine.kernel = lambda _child, _launch: 5e-3 * (1 + 0.05 * min(1.0, machine.now_s / 0.6))
    assert Flag.DRIFT in point(machine).flags
    drifting = Machine()
    drifting.kernel = lambda _child, _launch: 5e-3 * (1 + 0.10 * min(1.0, drifting.now_s / 10.0))
    found = verdict(drifting)
    assert found.verdict is Verdict.SAME
    assert abs(found.look.ratio - 1) < 0.003


def test_f3_a_machine_that_slows_down_slows_its_canary_too():
    machine = Machine()
    slow = lambda: 1 + 0.3 * min(1.0, machine.now_s / 0.6)  # noqa: E731
    machine.kernel = lambda _child, _launch: 5e-3 * slow()
    machine.canary = lambda _child: CANARY_S * slow()
    found = point(machine)
    assert found.value_s == pytest.approx(5e-3, rel=0.01)


def test_f4_a_mode_per_process_widens_the_interval_and_never_alarms():
    rng = random.Random(5)
    modes = {}
    machine = Machine(kernel=lambda child, _launch: 5e-3 * modes.setdefault(child.pid, rng.choice([1.0, 1.08])))
    found = point(machine, processes=14)
    assert found.half_width_s / found.value_s > 0.02
    assert Flag.BIMODAL in found.flags
    assert verdict(Machine(kernel=machine.kernel)).verdict not in {Verdict.REGRESSION, Verdict.IMPROVEMENT}


def test_f5_a_penalty_for_whoever_runs_second_cancels():
    machine = Machine()
    last = {}

    def kernel(child, _launch):
        changed = last.get("pid") not in {None, child.pid}
        last["pid"] = child.pid
        last["penalty"] = 1.06 if changed else last.get("penalty", 1.0) * 0.999
        return 5e-3 * last["penalty"]

    machine.kernel = kernel
    found = verdict(machine)
    assert found.verdict is Verdict.SAME


def test_f6_foreign_bursts_do_not_move_a_point():
    rng = random.Random(9)
    machine = Machine()
    burst = {"until_s": 0.0}

    def kernel(_child, _launch):
        if machine.now_s > burst["until_s"] and rng.random() < 0.02:
            burst["until_s"] = machine.now_s + 0.03
        return 5e-3 * (1.6 if machine.now_s < burst["until_s"] else 1.0)

    machine.kernel = kernel
    assert point(machine, processes=12).value_s == pytest.approx(5e-3, rel=0.02)


@pytest.mark.parametrize(
    "lie",
    [
        {"wall_s": [0.0] * 3, "cpu_s": [0.0] * 3},
        {"wall_s": [-1e-3] * 3, "cpu_s": [1e-3] * 3},
        {"wall_s": [5.0] * 3, "cpu_s": [5.0] * 3},
        {"wall_s": [5e-3], "cpu_s": [5e-3]},
        {"wall_s": [], "cpu_s": []},
        {"wall_s": [5e-9] * 3, "cpu_s": [5e-9] * 3},
        {"wall_s": [5e-3] * 3, "cpu_s": [5e-3]},
    ],
    ids=["zero", "negative", "thousandfold", "lost records", "no records", "a millionth", "half the records"],
)
def test_f8_a_lying_timer_is_called_implausible(lie):
    def answer(child, message, reply):
        if message["op"] == "block" and child.process % 2:
            return {**reply, **lie}
        return reply

    found = point(Machine(kernel=lambda _child, _launch: 50e-3, answer=answer), block_s=0.15)
    assert Flag.IMPLAUSIBLE in found.flags


def test_f8_only_lies_make_no_point_at_all():
    answer = lambda _c, message, reply: {**reply, "wall_s": [0.0] * 3} if message["op"] == "block" else reply  # noqa: E731
    found = point(Machine(answer=answer))
    assert found.status is MeasurementStatus.TOO_NOISY
    assert found.value_s is None


def test_f9_an_environment_that_changes_while_measuring_makes_no_point():
    class Changing(QuietDevice):
        keys = iter(["one", "two", "two"])

        def environment(self, canary_reference_s=None):
            found = super().environment(canary_reference_s)
            return type(found)(found.device, next(self.keys), found.fingerprint, found.facts)

    machine = Machine()
    found = measure_commits(
        [A],
        spawn=machine.spawn,
        device=Changing(),
        params=ProtocolParams(processes=4),
        rng=random.Random(0),
        clock=machine.clock,
    )
    assert found.measurements[0].status is MeasurementStatus.TOO_NOISY
    assert "environment" in found.measurements[0].error
    assert found.environment.comparable_key == "two"


def test_f10_work_that_is_hidden_from_the_clock_is_seen_by_the_parent():
    def hidden(child, message, reply):
        if message["op"] == "block":
            child.machine.now_s += 0.5  # done after the stop
        return reply

    assert Flag.IMPLAUSIBLE in point(Machine(answer=hidden)).flags


def test_f10_a_result_faster_than_the_machine_can_compute_is_implausible():
    def boast(_child, message, reply):
        if message["op"] == "discover":
            return {"ok": True, "workloads": [{**w, "flops": 1e15} for w in reply["workloads"]]}
        return reply

    assert Flag.IMPLAUSIBLE in point(Machine(answer=boast)).flags
    assert Flag.IMPLAUSIBLE not in point(Machine()).flags


def test_f10_a_kernel_that_patches_the_clock_does_not_reach_the_timer(monkeypatch):
    timer = CpuTimer()
    monkeypatch.setattr("time.perf_counter_ns", lambda: 0)
    monkeypatch.setattr("time.thread_time_ns", lambda: 0)
    launches = timer.time_launches(lambda: sum(range(1000)), count=3, inner=1)
    assert min(launches.wall_s) > 0


CHEAT = """
import numpy as np
from runners.api import Launch, Problem, Tolerance, Workload, implementation

P = Problem(
    name="p", family="f", axes=("n",),
    inputs=lambda axes, rng: {"x": rng.standard_normal(axes["n"])},
    reference=lambda inputs, axes: inputs["x"] * 2,
    flops=lambda axes: 1.0, bytes=lambda axes, dtype: 1.0,
    tolerance=lambda dtype, axes: Tolerance(rtol=1e-6, atol=1e-6, rel_l2=1e-6),
    workloads=(Workload({"n": 64}),),
)


@implementation("cheat", problem=P, device="cpu", dtype="f64")
def prepare(ctx, inputs, axes):
    x = inputs["x"].copy()
    cached = x * 2

    def load(fresh):
        x[:] = fresh["x"]

    return Launch(run=lambda: None, output=lambda: cached, load=load)
"""


def test_f10_a_kernel_that_caches_its_answer_passes_once_and_fails_on_fresh_inputs(tmp_path):
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "cheat.py").write_text(CHEAT)
    server = Server(CpuTimer())
    hello = {"op": "hello", "device": "cpu", "suite_dir": str(tmp_path / "suite"), "build_dir": str(tmp_path / "build")}
    assert server.answer(hello)["ok"]
    assert server.answer({"op": "prepare", "workload": "cheat[n=64]", "seed": 0, "proven_hash": None})["ok"]
    reply = server.answer({"op": "recheck", "workload": "cheat[n=64]", "seed": 5})
    assert (reply["ok"], reply["kind"]) == (False, "wrong_result")


def test_f11_cost_that_depends_on_the_data_is_the_same_data_everywhere():
    seeds = {}

    def remember(child, message, reply):
        if message["op"] == "prepare":
            seeds[child.pid] = message["seed"]
        return reply

    machine = Machine(answer=remember)
    machine.kernel = lambda child, _launch: 5e-3 * (1 + 0.2 * random.Random(seeds[child.pid]).random())
    found = point(machine)
    assert found.half_width_s / found.value_s < 1e-6


def test_f12_buffers_that_fit_the_cache_are_rotated():
    from runners.device.cuda.timer import rotation_count

    assert rotation_count(1 << 20, 50 << 20) * (1 << 20) >= 5 * (50 << 20)


def test_every_answer_of_the_child_is_one_json_object():
    server = Server(CpuTimer())
    for message in ({"op": "nothing"}, {"op": "block", "workload": "x", "launches": 1}, {"op": "discover"}):
        reply = server.answer(message)
        assert reply["ok"] is False
        assert json.loads(json.dumps(reply)) == reply


def test_a_hanging_block_costs_one_workload():
    def hang(_child, message, reply):
        if message["op"] == "block" and message["workload"] == "bad[n=1]":
            raise ChildTimedOutError("no answer to 'block' within 20 s")
        return reply

    machine = Machine(workloads=("bad[n=1]", "good[n=1]"), answer=hang)
    found = measure_commits(
        [A],
        spawn=machine.spawn,
        device=QuietDevice(),
        params=ProtocolParams(processes=4),
        rng=random.Random(0),
        clock=machine.clock,
    )
    assert {m.workload: m.status.value for m in found.measurements} == {"bad[n=1]": "timed_out", "good[n=1]": "ok"}
