"""Interleaved commits with identical code: nothing is timed but one in ten, and the others are measured as ever."""

import random

import pytest

from runners.measure import identical
from runners.measure.identical import IdenticalCode
from runners.measure.session import measure_commits
from runners.measure.team import Subject
from service.contract import MeasurementStatus, ProtocolParams
from tests.unit.runners.measure.scripted import Machine, QuietDevice

KEYS = ("k[n=1]", "k[n=2]", "k[n=3]")
PARAMS = ProtocolParams(processes=4, blocks=1, block_s=0.02, budget_s=60.0)


def measure(machine, tmp_path, *, shas=("head", "base"), settled=IdenticalCode.SETTLED):
    return measure_commits(
        [Subject(sha, tmp_path, tmp_path) for sha in shas],
        spawn=machine.spawn,
        device=QuietDevice(),
        params=PARAMS,
        identical=settled,
        rng=random.Random(1),
        clock=machine.clock,
    )


def machine_with(code, *, keys=KEYS, controls=()):
    """Children whose machine code is `code(sha, key)`, as (code hash, recipe hash)."""

    def answer(child, message, reply):
        if message["op"] == "static":
            code_hash, recipe = code(child.sha, message["workload"])
            return reply | {"static": {"code_hash": code_hash, "recipe_hash": recipe}}
        if message["op"] == "discover":
            for about in reply["workloads"]:
                about["control"] = about["workload"] in controls
        return reply

    return Machine(workloads=keys, answer=answer)


def asked(machine, op):
    return {(sha, message["workload"]) for sha, _, message in machine.asked if message["op"] == op}


def by_key(result):
    return {(m.sha, m.workload): m for m in result.measurements}


@pytest.fixture
def no_audit(monkeypatch):
    monkeypatch.setattr(identical, "audited", lambda key, facts, shas: False)


def test_equal_code_and_recipe_take_no_timing(no_audit, tmp_path):
    machine = machine_with(lambda sha, key: ("c0de", "r"))
    found = by_key(measure(machine, tmp_path))
    assert asked(machine, "block") == asked(machine, "warm") == set()
    assert {m.status for m in found.values()} == {MeasurementStatus.IDENTICAL}
    one = found["head", KEYS[0]]
    assert (one.identical_to, one.code_hash, one.value_s, one.blocks) == ("base", "c0de", None, ())
    assert found["base", KEYS[0]].identical_to == "head"
    assert "identical code" in one.error


def test_another_recipe_or_another_code_is_timed_beside_what_is_settled(no_audit, tmp_path):
    differs = {KEYS[1]: lambda sha: (sha, "r"), KEYS[2]: lambda sha: ("c0de", sha)}
    machine = machine_with(lambda sha, key: differs.get(key, lambda _: ("c0de", "r"))(sha))
    found = by_key(measure(machine, tmp_path))
    assert asked(machine, "block") == {(sha, key) for sha in ("head", "base") for key in KEYS[1:]}
    assert found["head", KEYS[0]].status is MeasurementStatus.IDENTICAL
    assert found["head", KEYS[1]].status is found["head", KEYS[2]].status is MeasurementStatus.OK


def test_code_that_nobody_could_read_is_timed(no_audit, tmp_path):
    machine = machine_with(lambda sha, key: (None, "r"), keys=KEYS[:1])
    assert by_key(measure(machine, tmp_path))["head", KEYS[0]].status is MeasurementStatus.OK


def test_a_third_commit_has_nothing_to_be_compared_with(no_audit, tmp_path):
    codes = {"mid": "old", "good": "old", "bad": "new"}
    machine = machine_with(lambda sha, key: (codes[sha], "r"), keys=KEYS[:1])
    found = by_key(measure(machine, tmp_path, shas=("mid", "good", "bad")))
    assert {sha: m.status for (sha, _), m in found.items()} == dict.fromkeys(
        ("mid", "good"), MeasurementStatus.IDENTICAL
    )
    assert asked(machine, "block") == set()


def test_a_control_is_timed_as_long_as_a_kernel_is(no_audit, tmp_path):
    control, kernel = KEYS[0], KEYS[1]
    machine = machine_with(
        lambda sha, key: ("lib", "r") if key == control else (sha, "r"), keys=KEYS[:2], controls={control}
    )
    assert by_key(measure(machine, tmp_path))["head", control].status is MeasurementStatus.OK
    machine = machine_with(lambda sha, key: ("lib", "r"), keys=KEYS[:2], controls={control})
    assert {key for _, key in by_key(measure(machine, tmp_path))} == {kernel}
    assert asked(machine, "block") == set()


def test_an_audited_pair_is_timed_although_its_code_is_equal(monkeypatch, tmp_path):
    monkeypatch.setattr(identical, "audited", lambda key, facts, shas: key == KEYS[1])
    machine = machine_with(lambda sha, key: ("c0de", "r"))
    found = by_key(measure(machine, tmp_path))
    assert asked(machine, "block") == {("head", KEYS[1]), ("base", KEYS[1])}
    assert found["head", KEYS[1]].status is MeasurementStatus.OK


def test_a_single_commit_and_a_plain_session_are_always_timed(no_audit, tmp_path):
    machine = machine_with(lambda sha, key: ("c0de", "r"), keys=KEYS[:1])
    assert by_key(measure(machine, tmp_path, shas=("head",)))["head", KEYS[0]].status is MeasurementStatus.OK
    plain = by_key(measure(machine, tmp_path, settled=IdenticalCode.TIMED))
    assert plain["head", KEYS[0]].status is MeasurementStatus.OK


def test_the_audit_takes_about_one_in_ten_and_the_same_ones_either_way_round():
    pairs = [(f"a{n}", f"b{n}") for n in range(2000)]
    facts = {"code_hash": "c", "recipe_hash": "r"}
    taken = [identical.audited("k", facts, pair) for pair in pairs]
    assert 140 < sum(taken) < 260
    assert taken == [identical.audited("k", facts, pair[::-1]) for pair in pairs]
