"""A session on a GPU, scripted: the way of timing is part of what a figure means; the parent checks what it is told."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runners.measure.comparison import compare
from runners.measure.pairs import Verdict
from runners.measure.protocol import Flag
from runners.measure.session import measure_commits
from runners.measure.team import Subject
from service.contract import MeasurementStatus, ProtocolParams
from tests.unit.runners.measure.scripted import Machine, QuietDevice

A = Subject("a" * 40, Path("/suite-a"), Path("/build"))
B = Subject("b" * 40, Path("/suite-b"), Path("/build"))
BY_GRAPH = {"method": "graph", "launches": 64, "sample_s": 5e-4, "symbols": "rmsnorm_bf16"}
BY_PLAIN = {"method": "plain", "launches": 64, "sample_s": 5e-4, "reason": "it allocates memory at each launch"}


def on_gpu(warmed, *, cache="warm", block=None):
    """A machine whose children plan as a GPU's do; `warmed(child)` is their plan."""

    def answer(child, message, reply):
        if message["op"] == "discover":
            described = [{**w, "device": "cuda", "cache": cache} for w in reply["workloads"]]
            return {**reply, "workloads": described}
        if message["op"] == "warm":
            return {**reply, **warmed(child)}
        if message["op"] == "static":
            return {"ok": True, "static": {"code_hash": child.sha, "recipe_hash": "r"}}
        if message["op"] == "block" and block is not None:
            return {**reply, **block(reply)}
        return reply

    return Machine(answer=answer)


def measured(machine, *, device=None, **params):
    found = measure_commits(
        [A],
        spawn=machine.spawn,
        device=device or QuietDevice(kind="cuda"),
        params=ProtocolParams(**{"processes": 4, "blocks": 2, **params}),
        rng=random.Random(0),
        clock=machine.clock,
    )
    return found.measurements[0]


def compared(machine):
    found = compare(
        A,
        B,
        spawn=machine.spawn,
        device=QuietDevice(kind="cuda"),
        params=ProtocolParams(processes=20, blocks=2, block_s=0.02, budget_s=1e9),
        floor=0.01,
        audit_share=0.0,
        rng=random.Random(3),
        clock=machine.clock,
    )
    return found.comparisons[0]


@pytest.mark.parametrize(
    ("warmed", "cache", "metric"),
    [
        (BY_GRAPH, "warm", "time"),
        (BY_PLAIN, "warm", "time_plain"),
        (BY_GRAPH, "cold", "time_cold"),
        (BY_PLAIN, "cold", "time_cold_plain"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["method"],
)
def test_warm_cold_and_plain_are_metrics_of_their_own(warmed, cache, metric):
    found = measured(on_gpu(lambda _child: warmed, cache=cache))
    assert found.status is MeasurementStatus.OK
    assert found.metric == metric


def test_how_a_figure_was_timed_and_what_really_ran_stay_with_it():
    assert measured(on_gpu(lambda _child: BY_GRAPH)).static["fact.symbols"] == "rmsnorm_bf16"
    plain = measured(on_gpu(lambda _child: BY_PLAIN))
    assert plain.static["fact.method"] == "plain"
    assert plain.static["fact.reason"] == "it allocates memory at each launch"


def test_every_process_encloses_as_many_launches_as_the_first():
    plans = iter([64, 32, 128, 16])
    machine = on_gpu(lambda _child: {**BY_GRAPH, "launches": next(plans)})
    measured(machine)
    asked = [message["launches"] for _, _, message in machine.asked if message["op"] == "warm"]
    assert asked == [None, 64, 64, 64]


def test_a_way_of_timing_that_changes_within_a_session_spoils_the_figure():
    found = measured(on_gpu(lambda child: BY_GRAPH if child.process < 2 else BY_PLAIN))
    assert found.status is MeasurementStatus.TOO_NOISY
    assert "timed by graph first and by plain now" in found.error


def test_two_sides_that_are_timed_in_two_ways_are_not_compared():
    found = compared(on_gpu(lambda child: BY_GRAPH if child.sha == A.sha else BY_PLAIN))
    assert found.verdict is Verdict.NOT_COMPARABLE
    assert "base was timed as time, head as time_plain: it allocates memory" in found.reason
    assert compared(on_gpu(lambda _child: BY_GRAPH)).verdict is Verdict.SAME


def test_f8_a_device_that_claims_more_time_than_passed_is_implausible():
    """Each sample encloses many launches: what is claimed is their sum."""
    assert Flag.IMPLAUSIBLE not in measured(on_gpu(lambda _child: BY_GRAPH)).flags
    machine = on_gpu(lambda _child: BY_GRAPH, block=lambda _reply: {"inner": 64})
    assert Flag.IMPLAUSIBLE in measured(machine).flags


def test_delays_and_flushes_are_no_hidden_work_and_explain_only_so_much():
    short = {"method": "graph", "launches": 1, "sample_s": 5e-3}

    def child(between_s):
        machine = on_gpu(lambda _child: short, block=lambda reply: {"wall_s": [1e-6] * len(reply["wall_s"]), "cpu_s": [1e-6] * len(reply["wall_s"]), "between_s": between_s})  # fmt: skip
        machine.kernel = lambda _child, _launch: 50e-3
        return machine

    honest = measured(child(0.0))
    assert Flag.IMPLAUSIBLE in honest.flags
    assert Flag.IMPLAUSIBLE not in measured(child(0.15)).flags
    slower = child(10.0)
    slower.kernel = lambda _child, _launch: 5.0
    assert Flag.IMPLAUSIBLE in measured(slower).flags


@dataclass
class RampingDevice(QuietDevice):
    """A board whose clock stands still after some warm-ups."""

    still_after: int = 0
    asked: list = field(default_factory=list)

    def clock_stood(self, before, after):
        self.asked.append(1)
        return len(self.asked) > self.still_after


def test_a_kernel_is_warmed_again_until_the_boards_clock_stands_still():
    machine, device = on_gpu(lambda _child: BY_GRAPH), RampingDevice(kind="cuda", still_after=2)
    found = measured(machine, device=device)
    warm_ups = [process for _, process, message in machine.asked if message["op"] == "warm"]
    assert warm_ups == [0, 0, 0, 1, 2, 3]
    assert Flag.NO_STEADY_STATE not in found.flags


def test_a_clock_that_never_stands_still_is_given_up_at_the_limit_and_said():
    found = measured(on_gpu(lambda _child: BY_GRAPH), device=RampingDevice(kind="cuda", still_after=10**9))
    assert found.status is MeasurementStatus.OK
    assert Flag.NO_STEADY_STATE in found.flags


def test_a_child_is_told_which_board_before_anything_else():
    device = QuietDevice(kind="cuda")
    device.hello = lambda: {"gpu_uuid": "GPU-1"}
    machine = on_gpu(lambda _child: BY_GRAPH)
    measured(machine, device=device)
    first = machine.asked[0][2]
    assert (first["op"], first["gpu_uuid"], first["device"]) == ("hello", "GPU-1", "cuda")


def test_too_many_throttled_blocks_carry_no_figure_and_say_why():
    device = QuietDevice(kind="cuda", seen=lambda: (Flag.THROTTLED,))
    found = measured(on_gpu(lambda _child: BY_GRAPH), device=device)
    assert found.status is MeasurementStatus.TOO_NOISY
    assert "throttled" in found.error
