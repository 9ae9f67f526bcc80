import itertools
import math
import random
from pathlib import Path

import pytest

from runners.errors import ChildTimedOutError, DeviceError
from runners.measure.protocol import Flag
from runners.measure.session import HoldLostError, Subject, measure_commits
from service.contract import FailureStage, MeasurementStatus, ProtocolParams
from tests.unit.runners.measure.scripted import Machine, QuietDevice

A = Subject("a" * 40, Path("/suite-a"), Path("/build"))
B = Subject("b" * 40, Path("/suite-b"), Path("/build"))


def measure(machine, *subjects, device=None, **params):
    progress = params.pop("progress", lambda _s, _d, _t: True)
    workloads = params.pop("workloads", ())
    return measure_commits(
        subjects or (A,),
        spawn=machine.spawn,
        device=device or QuietDevice(),
        params=ProtocolParams(**{"processes": 5, "blocks": 3, **params}),
        workloads=workloads,
        progress=progress,
        rng=random.Random(0),
        clock=machine.clock,
    )


def test_a_history_point_is_kernel_over_canary_with_all_its_samples():
    found = measure(Machine(), canary_reference_s=2e-3)
    (report,) = found.measurements
    assert report.status is MeasurementStatus.OK
    assert report.value_s == pytest.approx(10e-3)
    assert {b.process for b in report.blocks} == set(range(found.processes))
    assert report.output_hash == "abc"
    assert report.code_hash == "c0de"
    assert found.canary_wall_s == pytest.approx(1e-3)


def test_measuring_stops_when_every_interval_is_narrow_enough():
    found = measure(Machine(), processes=20)
    assert found.processes == 4


def test_a_noisy_workload_gets_more_processes_and_the_quiet_one_leaves_the_plan():
    noisy = random.Random(2)
    modes = {}

    def kernel(child, _launch):
        if child.last == "noisy[n=1]":
            return 5e-3 * math.exp(modes.setdefault(child.pid, noisy.gauss(0, 0.05)))
        return 5e-3

    machine = Machine(workloads=("noisy[n=1]", "quiet[n=1]"), kernel=kernel)

    def spawn(subject, process, plain=machine.spawn):
        child = plain(subject, process)
        request = child.request
        child.last = ""

        def remember(message, *, timeout_s):
            child.last = message.get("workload", child.last)
            return request(message, timeout_s=timeout_s)

        child.request = remember
        return child

    machine.spawn = spawn
    found = measure(machine, processes=9)
    by_key = {m.workload: m for m in found.measurements}
    assert {b.process for b in by_key["quiet[n=1]"].blocks} == set(range(4))
    assert {b.process for b in by_key["noisy[n=1]"].blocks} == set(range(9))


def test_blocks_are_shuffled_over_the_suite():
    machine = Machine(workloads=("x[n=1]", "y[n=1]", "z[n=1]"))
    measure(machine, processes=6, blocks=6, target_half_width=0.0)
    rounds = [m["workload"] for _, _, m in machine.asked if m["op"] == "block"]
    orders = {tuple(rounds[i : i + 3]) for i in range(0, len(rounds), 3)}
    assert len(orders) > 3
    assert all(len(set(order)) == 3 for order in orders)


def test_two_commits_are_timed_in_palindromes_in_processes_of_their_own():
    machine = Machine()
    found = measure(machine, A, B, processes=8, target_half_width=-1.0)
    order = [sha[0] for sha, _, m in machine.asked if m["op"] == "block"]
    quartets = {"".join(order[i : i + 4]) for i in range(0, len(order), 4)}
    assert quartets == {"abba", "baab"}
    assert machine.children == 16
    assert {m.sha for m in found.measurements} == {A.sha, B.sha}
    orders = [[b.order for b in m.blocks if b.process == 0] for m in found.measurements]
    assert sorted(itertools.chain(*orders)) == list(range(12))


def test_a_wrong_result_is_never_a_point_even_when_it_shows_only_on_fresh_inputs():
    def cheat(_child, message, reply):
        return (
            {"ok": False, "kind": "wrong_result", "error": "3 values are off"} if message["op"] == "recheck" else reply
        )

    (report,) = measure(Machine(answer=cheat)).measurements
    assert report.status is MeasurementStatus.WRONG_RESULT
    assert report.value_s is None
    assert "3 values are off" in report.error


def test_a_kernel_that_kills_its_process_is_left_out_and_the_others_are_measured():
    def crash(child, message, reply):
        if message["op"] == "block" and message["workload"] == "bad[n=1]":
            child.die()
        return reply

    found = measure(Machine(workloads=("bad[n=1]", "good[n=1]"), answer=crash))
    by_key = {m.workload: m for m in found.measurements}
    assert by_key["bad[n=1]"].status is MeasurementStatus.CRASHED
    assert "SIGSEGV" in by_key["bad[n=1]"].error
    assert by_key["good[n=1]"].status is MeasurementStatus.OK
    processes = [(b.process, b.order) for b in by_key["good[n=1]"].blocks]
    assert len(processes) == len(set(processes))


def test_a_kernel_that_hangs_is_timed_out():
    def hang(_child, message, reply):
        if message["op"] == "prepare":
            raise ChildTimedOutError("no answer within 60 s")
        return reply

    (report,) = measure(Machine(answer=hang)).measurements
    assert report.status is MeasurementStatus.TIMED_OUT


def test_a_commit_that_cannot_be_imported_fails_alone():
    def broken(child, message, reply):
        if message["op"] == "discover" and child.sha == B.sha:
            return {"ok": False, "kind": "discover", "error": "gemm.py: cannot be imported: SyntaxError"}
        return reply

    found = measure(Machine(answer=broken), A, B)
    (failure,) = found.commit_failures
    assert failure.sha == B.sha
    assert failure.failure.stage is FailureStage.DISCOVER
    assert [m.sha for m in found.measurements] == [A.sha]


@pytest.mark.parametrize(("broken", "fails"), [({"x[n=1]"}, False), ({"x[n=1]", "y[n=1]"}, True)])
def test_what_does_not_compile_is_said_so_and_a_commit_fails_only_when_nothing_compiles(broken, fails):
    def no_compiler(_child, message, reply):
        return {"ok": True, "failed": dict.fromkeys(broken, "gcc failed")} if message["op"] == "build" else reply

    found = measure(Machine(workloads=("x[n=1]", "y[n=1]"), answer=no_compiler))
    assert [f.failure.stage for f in found.commit_failures] == ([FailureStage.BUILD] if fails else [])
    if not fails:
        by_key = {m.workload: m for m in found.measurements}
        assert by_key["x[n=1]"].error == "cannot build: gcc failed"
        assert by_key["y[n=1]"].status is MeasurementStatus.OK


def test_a_budget_ends_the_session_with_what_there_is():
    rng = random.Random(4)
    machine = Machine(kernel=lambda c, _l: 5e-3 * (1 + 0.2 * c.rng.random() + 0.01 * rng.random()))
    found = measure(machine, processes=50, budget_s=1.5, target_half_width=0.0001)
    assert 4 <= found.processes < 50
    assert Flag.SHORT_OF_TIME in found.flags
    assert found.measurements[0].status is MeasurementStatus.OK
    assert machine.now_s <= 1.6


def test_losing_the_lease_ends_the_session():
    with pytest.raises(HoldLostError):
        measure(
            Machine(), progress=lambda stage, done, _t: not (stage == "measure" and done == 2), target_half_width=0.0
        )


def test_children_that_never_start_are_the_commits_failure_and_all_are_closed():
    children = []

    class Dying(Machine):
        def spawn(self, subject, process):
            children.append(super().spawn(subject, process))
            return children[-1]

    found = measure(Dying(answer=lambda child, _m, _r: child.die()))
    assert found.measurements == ()
    assert "SIGSEGV" in found.commit_failures[0].failure.reason
    assert all(child.closed for child in children)


def test_asking_for_workloads_that_the_suite_lacks_is_a_failure_that_names_them():
    found = measure(Machine(), workloads=("nowhere[n=1]",))
    assert "nowhere[n=1]" in found.commit_failures[0].failure.reason


def test_a_device_that_is_busy_stops_the_session_before_any_child():
    class Busy(QuietDevice):
        def taken(self):
            raise DeviceError("a foreign process runs on it")

    machine = Machine()
    with pytest.raises(DeviceError):
        measure(machine, device=Busy())
    assert machine.children == 0


def test_the_next_process_is_brought_up_beside_the_present_one_and_none_is_left_behind():
    children = []

    class Counting(Machine):
        def spawn(self, subject, process):
            children.append(super().spawn(subject, process))
            return children[-1]

    found = measure(Counting(), device=QuietDevice(prepares_beside=True), processes=9)
    assert found.processes == 4
    assert len(children) == 5
    assert all(child.closed for child in children)
    assert {b.process for b in found.measurements[0].blocks} == set(range(4))


def test_every_process_and_commit_times_the_same_inputs_and_unknown_ones_are_checked_after():
    machine = Machine()
    measure(machine, A, B, seed=7)
    assert {m["seed"] for _, _, m in machine.asked if m["op"] == "prepare"} == {7}
    fresh = [m["seed"] for _, _, m in machine.asked if m["op"] == "recheck"]
    assert len(set(fresh)) == 2
    assert 7 not in fresh


def test_what_others_did_meanwhile_flags_every_figure_of_the_session():
    machine = Machine(workloads=("one[n=1]", "two[n=1]"))
    found = measure(machine, device=QuietDevice(seen_around=(Flag.CONTENDED,)))
    assert [m.flags for m in found.measurements] == [(Flag.CONTENDED,)] * 2
