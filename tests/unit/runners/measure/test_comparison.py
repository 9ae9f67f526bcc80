import math
import random
from pathlib import Path

import pytest

from runners.measure.comparison import compare
from runners.measure.pairs import Verdict
from runners.measure.team import Subject
from service.contract import ProtocolParams
from tests.unit.runners.measure.scripted import Machine, QuietDevice

A = Subject("a" * 40, Path("/suite-a"), Path("/build"))
B = Subject("b" * 40, Path("/suite-b"), Path("/build"))


def codes(by_sha, recipes=None):
    def answer(child, message, reply):
        if message["op"] == "static":
            code, recipe = by_sha[child.sha], (recipes or {}).get(child.sha, "r")
            return {"ok": True, "static": {"code_hash": code, "recipe_hash": recipe}}
        return reply

    return answer


DIFFERENT = codes({A.sha: "one", B.sha: "two"})


def run(machine, *, processes=40, floor=0.01, budget_s=1e9, seed=0, audit_share=0.0, **extra):
    return compare(
        A,
        B,
        spawn=machine.spawn,
        device=QuietDevice(),
        params=ProtocolParams(processes=processes, blocks=2, block_s=0.01, budget_s=budget_s),
        floor=floor,
        audit_share=audit_share,
        rng=random.Random(seed),
        clock=machine.clock,
        **extra,
    )


def noisy(ratio, sd, seed=1):
    rng = random.Random(seed)
    modes = {}

    def kernel(child, _launch):
        mode = modes.setdefault(child.pid, rng.gauss(0, sd))
        return 5e-3 * math.exp(mode) * (ratio if child.sha == B.sha else 1.0)

    return kernel


def test_a_real_slowdown_is_found_at_the_first_look():
    result = run(Machine(kernel=noisy(1.10, 0.003), answer=DIFFERENT))
    (found,) = result.comparisons
    assert found.verdict is Verdict.REGRESSION
    assert found.look.pairs == 5
    assert result.exit_code == 1


def test_equal_speed_ends_as_same_and_green():
    result = run(Machine(kernel=noisy(1.0, 0.003), answer=DIFFERENT))
    assert result.comparisons[0].verdict is Verdict.SAME
    assert result.exit_code == 0


def test_noise_costs_more_pairs_and_only_planned_looks_decide():
    result = run(Machine(kernel=noisy(1.02, 0.012, seed=4), answer=DIFFERENT))
    assert result.comparisons[0].look.pairs in {10, 20, 40}


def test_a_spent_budget_is_inconclusive_and_never_green():
    result = run(Machine(kernel=noisy(1.0, 0.05), answer=DIFFERENT), budget_s=0.5)
    assert result.comparisons[0].verdict is Verdict.INCONCLUSIVE
    assert result.exit_code == 2


def test_identical_machine_code_is_settled_without_timing():
    machine = Machine(kernel=noisy(1.5, 0.0), answer=codes({A.sha: "same", B.sha: "same"}))
    result = run(machine)
    assert [c.verdict for c in result.comparisons] == [Verdict.SAME_CODE]
    assert result.exit_code == 0
    assert not [m for _, _, m in machine.asked if m["op"] in {"block", "warm", "canary"}]


def test_equal_code_on_another_recipe_is_timed():
    machine = Machine(kernel=noisy(1.5, 0.001), answer=codes({A.sha: "c", B.sha: "c"}, {A.sha: "r1", B.sha: "r2"}))
    assert run(machine).comparisons[0].verdict is Verdict.REGRESSION


def test_an_audit_times_identical_code_but_alarms_nobody():
    machine = Machine(kernel=noisy(1.5, 0.001), answer=codes({A.sha: "same", B.sha: "same"}))
    result = run(machine, audit_share=1.0)
    assert result.comparisons[0].verdict is Verdict.SAME_CODE
    assert "regression" in result.comparisons[0].reason
    assert result.exit_code == 0


def test_a_wrong_result_in_head_is_its_own_verdict():
    def wrong(child, message, reply):
        if message["op"] == "prepare" and child.sha == B.sha:
            return {"ok": False, "kind": "wrong_result", "error": "off by 3"}
        return DIFFERENT(child, message, reply)

    result = run(Machine(answer=wrong))
    assert result.comparisons[0].verdict is Verdict.WRONG_RESULT
    assert result.exit_code == 1


@pytest.mark.parametrize("op", ["discover", "build"])
def test_a_workload_that_one_side_lacks_or_cannot_build_is_not_comparable(op):
    def lacking(child, message, reply):
        if message["op"] == op and child.sha == B.sha:
            return (
                {"ok": True, "workloads": []} if op == "discover" else {"ok": True, "failed": {"k[n=1]": "gcc failed"}}
            )
        return DIFFERENT(child, message, reply)

    result = run(Machine(answer=lacking))
    assert result.comparisons[0].verdict is Verdict.NOT_COMPARABLE
    assert result.exit_code == 2


def test_a_commit_that_cannot_be_imported_is_an_error():
    def broken(child, message, reply):
        if message["op"] == "discover" and child.sha == B.sha:
            return {"ok": False, "kind": "discover", "error": "SyntaxError"}
        return reply

    result = run(Machine(answer=broken))
    assert result.failures[0].sha == B.sha
    assert result.exit_code == 3


def test_a_crash_of_one_side_names_that_side():
    def crash(child, message, reply):
        if message["op"] == "block" and child.sha == A.sha:
            child.die()
        return DIFFERENT(child, message, reply)

    result = run(Machine(answer=crash))
    assert result.comparisons[0].verdict is Verdict.NOT_COMPARABLE
    assert result.comparisons[0].reason.startswith("base: crashed")


def test_only_wanted_workloads_are_compared():
    result = run(Machine(workloads=("x[n=1]", "y[n=1]"), answer=DIFFERENT), wanted=lambda key: key.startswith("x"))
    assert [c.workload for c in result.comparisons] == ["x[n=1]"]
