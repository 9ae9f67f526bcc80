"""Many measurements of one commit are one point, in graph order, whatever the order of arrival."""

from __future__ import annotations

import math
from itertools import permutations

import pytest

from service.domain.points import Figure, reach, to_points


def figure(position: int, value_s: float, *, run_id: int = 1, half_width_s: float | None = 0.0) -> Figure:
    return Figure(
        commit_id=position + 100, position=position, value_s=value_s, half_width_s=half_width_s, run_id=run_id
    )


def test_three_runs_of_one_commit_are_one_point_with_three_runs_behind_it():
    (point,) = to_points([figure(4, 1.0, run_id=1), figure(4, 1.1, run_id=2), figure(4, 1.21, run_id=3)])
    assert point.runs == 3
    assert point.value_s == pytest.approx(1.1)


def test_points_come_in_graph_order_whatever_the_order_of_arrival():
    figures = [figure(30, 1.0), figure(29, 2.0), figure(31, 3.0, run_id=7), figure(31, 3.3, run_id=8)]
    answers = {to_points(order) for order in permutations(figures)}
    assert len(answers) == 1
    assert [point.position for point in answers.pop()] == [29, 30, 31]


def test_runs_that_disagree_more_than_they_admit_widen_the_standard_error():
    (point,) = to_points([figure(1, 1.0, half_width_s=0.001), figure(1, 1.2, run_id=2, half_width_s=0.001)])
    assert point.se == pytest.approx(math.log(1.2) / 2, rel=1e-6)


def test_one_run_keeps_its_own_half_width():
    (point,) = to_points([figure(1, 2.0, half_width_s=0.04)])
    assert point.se == pytest.approx(0.02 / 1.959964)


def test_an_interval_over_few_processes_claims_more_than_its_standard_error():
    """Four processes: the half-width is 3.18 standard errors, not 1.96."""
    four = Figure(commit_id=1, position=1, value_s=1.0, half_width_s=0.3182, run_id=1, processes=4)
    (point,) = to_points([four])
    assert point.se == pytest.approx(0.1)


def test_beyond_the_table_and_where_nothing_is_known_the_normal_quantile_serves():
    assert reach(0) == reach(1) == reach(100) == pytest.approx(1.959964)
