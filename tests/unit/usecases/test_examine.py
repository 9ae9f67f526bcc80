"""What the points of one series make suspicious, and that only the points decide, not the order they came in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from service.domain.points import Figure, to_points
from service.stats.verdict import Better
from service.store.regressions import SeriesChange
from service.store.tables import ChangePoint
from service.usecases.examine import (
    Candidate,
    candidates,
    families_moved,
    split_settled,
    stable_segments,
    window,
    without_odd,
)


def history(*levels: tuple[float, int], cv: float = 0.004, seed: int = 1, environments: tuple[int, ...] = ()):
    """Points of consecutive levels, each given as (value, points)."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.full(count, level) for level, count in levels])
    values *= np.exp(rng.normal(0, cv, values.size))
    hosts = environments or (1,) * values.size
    return to_points(
        Figure(100 + i, i, float(v), float(v) * cv, run_id=i, environment_id=host)
        for i, (v, host) in enumerate(zip(values, hosts, strict=True))
    )


def found(points, *, commit_id: int | None = None, min_effect: float = 0.02, better: Better = Better.LOWER):
    newest = points[-1].commit_id
    return candidates(points, commit_id=commit_id or newest, better=better, min_effect=min_effect)


def pairs(points, **options) -> list[tuple[int, int]]:
    return [(item.good.position, item.bad.position) for item in found(points, **options)]


def test_the_first_point_of_a_new_level_is_enough_for_a_suspicion():
    assert pairs(history((1.0, 6), (1.12, 1))) == [(5, 6)]


def test_a_backfilled_point_of_an_older_level_is_suspicious_at_the_other_end():
    points = history((1.0, 1), (1.12, 6))
    assert pairs(points, commit_id=points[0].commit_id) == [(0, 1)]


def test_a_newcomer_that_came_and_went_is_a_step_there_and_a_step_back():
    points = history((1.0, 4), (1.2, 1), (1.0, 4))
    assert pairs(points, commit_id=points[4].commit_id) == [(3, 4), (4, 5)]
    there, back = found(points, commit_id=points[4].commit_id)
    assert (1 + there.effect) * (1 + back.effect) == pytest.approx(1.0)
    assert back.effect_low < back.effect < back.effect_high < 0


@pytest.mark.parametrize("seed", range(10))
def test_a_quiet_history_makes_nothing_suspicious(seed):
    assert pairs(history((1.0, 40), seed=seed)) == []


def test_a_five_per_cent_loss_and_a_gain_nine_commits_later_are_two_events():
    assert pairs(history((1.0, 12), (1.05, 9), (1.0, 12))) == [(11, 12), (20, 21)]


def test_steps_that_stay_below_the_floor_one_by_one_alarm_when_they_add_up():
    points = history((1.00, 10), (1.04, 10), (1.08, 10))
    (only,) = found(points, min_effect=0.05)
    assert (only.good.position, only.bad.position) == (9, 20)
    assert only.effect == pytest.approx(0.08, abs=0.01)
    assert found(points[:20], min_effect=0.05) == []


def test_gains_that_add_up_are_no_alarm():
    assert pairs(history((1.08, 10), (1.04, 10), (1.00, 10)), min_effect=0.05) == []


def test_steps_of_a_metric_where_higher_is_better_add_up_downwards():
    points = history((1.00, 10), (0.96, 10), (0.92, 10))
    assert pairs(points, min_effect=0.05, better=Better.HIGHER) == [(9, 20)]
    assert pairs(points, min_effect=0.05, better=Better.LOWER) == []


def test_a_step_far_from_the_newcomer_is_old_news():
    points = history((1.0, 60), (1.03, 60))
    assert pairs(points) == []
    assert pairs(points, commit_id=points[62].commit_id) == [(59, 60)]


@pytest.mark.parametrize("seed", range(8))
def test_each_order_of_arrival_suspects_the_same_step(seed):
    points = history((1.0, 6), (1.1, 6), seed=seed)
    rng = np.random.default_rng(seed)
    suspected = set()
    here: list = []
    for index in rng.permutation(len(points)):
        here = sorted([*here, points[index]], key=lambda point: point.position)
        suspected |= {(c.good.position, c.bad.position) for c in found(here, commit_id=points[index].commit_id)}
    known = {point.position for point in points}
    assert suspected, "no order may miss the step"
    assert all(good < 6 <= bad for good, bad in suspected)
    assert {good for good, _ in suspected} | {bad for _, bad in suspected} <= known


def change(good: int, bad: int) -> SeriesChange:
    return SeriesChange(change=ChangePoint(), good_position=good, bad_position=bad, state=None)


def test_segments_end_at_changes_and_leave_out_what_lies_in_a_range_under_search():
    points = history((1.0, 10))
    segments = stable_segments(points, [change(3, 6)])
    assert [[p.position for p in s] for s in segments] == [[0, 1, 2, 3], [6, 7, 8, 9]]
    assert stable_segments(points, []) == [list(points)]


def test_the_window_holds_the_newcomer_and_is_bounded():
    points = history((1.0, 50))
    assert window(points, commit_id=points[-1].commit_id, size=10) == points[-10:]
    old = window(points, commit_id=points[7].commit_id, size=10)
    assert points[7] in old
    assert len(old) == 10
    assert window(points[:4], commit_id=points[0].commit_id, size=10) == points[:4]


def test_hosts_that_alternate_are_no_steps_and_a_takeover_tells_its_sides():
    rng = np.random.default_rng(3)
    hosts = tuple(int(host) for host in rng.integers(1, 3, 40))
    points = [
        Figure(i, i, (1.1 if host == 2 else 1.0) * float(np.exp(rng.normal(0, 0.004))), 0.004, i, environment_id=host)
        for i, host in enumerate(hosts)
    ]
    assert not any(item.persistent for item in found(to_points(points)))
    (step,) = found(history((1.0, 8), (1.1, 1), environments=(1,) * 8 + (2,)))
    assert step.environments() == (frozenset({1}), frozenset({2}))


def test_a_settled_step_that_lasts_is_the_machines_and_an_odd_point_is_not():
    points = history((1.0, 8), (1.1, 4))
    (step,) = found(points)
    fresh, lasting, odd = split_settled([step], {step.pair: "within 2 %"})
    assert (fresh, lasting, odd) == ([], [step], [])
    (spike,) = found(history((1.0, 8), (1.1, 1)))
    assert split_settled([spike], [spike.pair])[2] == [spike]
    assert split_settled([spike], [])[0] == [spike]


def test_one_flaky_point_is_left_out_a_habit_and_a_new_level_are_not():
    flaky = history((1.0, 5), (1.6, 1), (1.0, 5))
    assert without_odd(flaky, {(104, 105)}) == [*flaky[:5], *flaky[6:]]
    assert without_odd(flaky, {}) == list(flaky)
    lasting = history((1.0, 5), (1.6, 4))
    assert without_odd(lasting, {(104, 105)}) == list(lasting)
    habit = history(*[(1.0, 2), (1.6, 1)] * 4, (1.0, 2))
    pairs_of_habit = {(100 + i - 1, 100 + i) for i in (2, 5, 8, 11)}
    assert without_odd(habit, pairs_of_habit) == habit


def stepping(effect: float = 0.1) -> Candidate:
    (step,) = found(history((1.0, 8), (1 + effect, 1)))
    return step


def test_the_share_of_families_counts_families_not_series_and_only_one_way():
    watched = [f"family{i}" for i in range(6)]
    up, down = stepping(0.1), stepping(-0.1)
    share = families_moved([("family0", up), ("family0", up), ("family1", up), ("family2", down)], watched=watched)
    assert share(up) == pytest.approx(2 / 6)
    assert share(down) == pytest.approx(1 / 6)


def test_few_families_say_nothing_of_the_environment():
    step = stepping()
    assert families_moved([("a", step), ("b", step)], watched=["a", "b", "c"])(step) == 0.0


def test_candidates_come_in_order_and_once():
    points = history((1.0, 8), (1.1, 8), (1.25, 8))
    order = [item.bad.position for item in found(points)]
    assert order == sorted(set(order))
    assert all(a < b for a, b in pairwise(order))
