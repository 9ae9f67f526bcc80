"""What the engine makes of faults in detail; that each defence is needed is shown in test_defences.py."""

import json
import random

import pytest

from runners.errors import ChildTimedOutError
from runners.measure.child import Server
from runners.measure.pairs import Verdict
from runners.measure.protocol import Flag
from runners.measure.session import measure_commits
from runners.measure.timer import CpuTimer
from service.contract import MeasurementStatus, ProtocolParams
from tests.unit.runners.measure.planted import A, comparison, point
from tests.unit.runners.measure.scripted import Machine, QuietDevice


def test_f1_a_slow_first_call_is_in_no_sample():
    found = point(Machine(kernel=lambda _child, launch: 0.5 if launch == 0 else 5e-3))
    assert max(s for b in found.blocks for s in b.wall_s) == pytest.approx(5e-3)
    assert found.value_s == pytest.approx(5e-3)


def test_f3_a_slow_drift_is_flagged_in_a_point_and_cancels_in_a_comparison():
    machine = Machine()
    machine.kernel = lambda _child, _launch: 5e-3 * (1 + 0.05 * min(1.0, machine.now_s / 0.6))
    assert Flag.DRIFT in point(machine).flags
    drifting = Machine()
    drifting.kernel = lambda _child, _launch: 5e-3 * (1 + 0.10 * min(1.0, drifting.now_s / 10.0))
    found = comparison(drifting)
    assert found.verdict is Verdict.SAME
    assert abs(found.look.ratio - 1) < 0.003


def test_f4_a_mode_per_process_widens_the_interval_and_never_alarms():
    rng = random.Random(5)
    modes = {}
    machine = Machine(kernel=lambda child, _launch: 5e-3 * modes.setdefault(child.pid, rng.choice([1.0, 1.08])))
    found = point(machine, processes=14)
    assert found.half_width_s / found.value_s > 0.02
    assert Flag.BIMODAL in found.flags
    assert comparison(Machine(kernel=machine.kernel)).verdict not in {Verdict.REGRESSION, Verdict.IMPROVEMENT}


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


def test_f10_a_result_faster_than_the_machine_can_compute_is_implausible():
    def boast(_child, message, reply):
        if message["op"] == "discover":
            return {"ok": True, "workloads": [{**w, "flops": 1e15} for w in reply["workloads"]]}
        return reply

    assert Flag.IMPLAUSIBLE in point(Machine(answer=boast)).flags
    assert Flag.IMPLAUSIBLE not in point(Machine()).flags


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
