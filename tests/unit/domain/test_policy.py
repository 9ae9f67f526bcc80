"""Which commits are measured, and why others are not."""

from __future__ import annotations

import pytest

from service.domain.policy import MAX_RUNS_PER_PUSH, commits_to_measure, reason_to_skip
from service.domain.states import MeasurePolicy


def test_tip_takes_the_last_and_every_takes_all():
    assert commits_to_measure(MeasurePolicy.TIP, ["a", "b", "c"]) == ("c",)
    assert commits_to_measure(MeasurePolicy.EVERY, ["a", "b", "c"]) == ("a", "b", "c")


@pytest.mark.parametrize("policy", MeasurePolicy)
def test_nothing_pushed_is_nothing_to_measure(policy):
    assert commits_to_measure(policy, []) == ()


def test_a_very_long_push_is_cut_to_its_newest_commits():
    pushed = [str(index) for index in range(MAX_RUNS_PER_PUSH + 10)]
    assert commits_to_measure(MeasurePolicy.EVERY, pushed) == tuple(pushed[10:])


@pytest.mark.parametrize(
    ("trees", "measured", "skipped"),
    [
        ({"a": "t"}, None, False),
        ({"a": "t", "b": "t"}, "b", True),
        ({"a": "t", "b": "u"}, "b", False),
        ({"a": None}, None, True),
        ({"a": None, "b": None}, "b", True),
        ({"a": "t", "b": None}, "b", False),
    ],
)
def test_a_commit_is_skipped_exactly_when_it_cannot_differ(trees, measured, skipped):
    assert (reason_to_skip("a", trees=trees, measured_before=measured) is not None) == skipped
