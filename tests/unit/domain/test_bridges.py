import math

import pytest

from service.domain.bridges import BoundaryKind, boundary_of, bridge_between, changed_facts
from service.domain.points import T95, Point


def point(commit_id: int, value_s: float) -> Point:
    return Point(commit_id=commit_id, position=commit_id, value_s=value_s, se=0.01, runs=1)


def test_only_facts_that_each_side_agrees_on_are_what_changed():
    before = [
        {"driver": "550", "host": "a", "gpu": "H200"},
        {"driver": "550", "host": "b", "gpu": "H200"},
    ]
    after = [{"driver": "555", "host": "a", "gpu": "H200"}]
    assert changed_facts(before, after) == ("driver 550 → 555",)


def test_facts_of_the_single_host_are_not_what_changed():
    before, after = {"driver": "550", "measured_cpu": "1"}, {"driver": "555", "measured_cpu": "2"}
    assert changed_facts([before], [after]) == ("driver 550 → 555",)


def test_a_fact_that_one_side_never_recorded_is_named():
    assert changed_facts([{}], [{"clock_lock": "1500 MHz"}]) == ("clock lock unknown → 1500 MHz",)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"keys": ("a", "b"), "facts": ("driver 550 → 555",)}, BoundaryKind.ENVIRONMENT, "driver 550 → 555"),
        ({"keys": ("a", "b")}, BoundaryKind.ENVIRONMENT, "environment class a → b"),
        ({"epochs": (1, 2), "facts": ("not asked",)}, BoundaryKind.ENVIRONMENT, "harness epoch 1 → 2"),
        ({"versions": (1, 2), "keys": ("a", "b")}, BoundaryKind.VERSION, "version 1 → 2, environment class a → b"),
        ({}, BoundaryKind.VERSION, "unit or direction of the metric"),
    ],
)
def test_a_boundary_says_what_changed(change, kind, words):
    same = {"facts": (), "keys": ("a", "a"), "epochs": (1, 1), "versions": (1, 1)}
    found = boundary_of(**same | change)
    assert (found.kind, ", ".join(found.changes)) == (kind, words)
    assert found.words == f"new {kind}: {words}"


def test_a_bridge_is_the_mean_ratio_over_the_commits_of_both_sides_with_students_t():
    old = [point(1, 1.0), point(2, 2.0), point(3, 4.0), point(9, 7.0)]
    new = [point(1, 1.1), point(2, 2.2 * 1.02), point(3, 4.4 / 1.02), point(10, 5.0)]
    found = bridge_between(old, new)
    assert found.commits == 3
    assert found.ratio == pytest.approx(1.1)
    half = T95[1] * math.log(1.02) / math.sqrt(3)  # two degrees of freedom; the sd of (0, +d, -d) is d
    assert (math.log(found.high / found.ratio), math.log(found.ratio / found.low)) == pytest.approx((half, half))


def test_one_commit_gives_no_interval_and_none_no_bridge():
    alone = bridge_between([point(1, 1.0)], [point(1, 1.2)])
    assert (alone.ratio, alone.low, alone.high) == (pytest.approx(1.2), None, None)
    assert bridge_between([point(1, 1.0)], [point(2, 1.2)]) is None
