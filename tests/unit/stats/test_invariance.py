"""What must not change the detector's answer, checked over many series."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.points import Figure, to_points
from service.stats.changepoint import (
    LATE_POINTS,
    SAME_ALARM_POINTS,
    TAIL,
    TAIL_POINTS,
    DetectorSettings,
    detect,
    detect_tail,
    new_alarms,
)
from service.stats.simulate import Noise, series

KINDS = list(Noise)
seeds = st.integers(0, 10_000)
kinds = st.sampled_from(KINDS)


def stepped(seed: int, kind: Noise, *, n: int = 120, effect: float = 0.1, cv: float = 0.01):
    return series(np.random.default_rng(seed), n, steps={n // 2: effect}, cv=cv, kind=kind, base=1e-4)


def indices(found) -> list[int]:
    return [change.index for change in found.changes]


@settings(max_examples=60, deadline=None)
@given(seed=seeds, kind=kinds, scale=st.floats(1e-9, 1e9))
def test_the_unit_of_the_values_does_not_matter(seed, kind, scale):
    values = stepped(seed, kind)
    one, other = detect(values), detect(values * scale)
    assert indices(one) == indices(other)
    assert [c.effect for c in one.changes] == pytest.approx([c.effect for c in other.changes], rel=1e-6, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=seeds, kind=kinds)
def test_time_run_backwards_shows_the_same_large_step(seed, kind):
    values = stepped(seed, kind, effect=0.15)
    forward, backward = detect(values), detect(values[::-1].copy())
    assert any(abs(i - 60) <= SAME_ALARM_POINTS for i in indices(forward))
    assert any(abs(values.size - i - 60) <= SAME_ALARM_POINTS for i in indices(backward))


@settings(max_examples=60, deadline=None)
@given(seed=seeds, kind=kinds)
def test_a_ratio_and_its_inverse_show_opposite_effects(seed, kind):
    values = stepped(seed, kind)
    one, other = detect(values), detect(1 / values)
    assert indices(one) == indices(other)
    for up, down in zip(one.changes, other.changes, strict=True):
        assert (1 + up.effect) * (1 + down.effect) == pytest.approx(1, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_quiet_points_after_a_found_step_leave_it_where_it_is(seed):
    rng = np.random.default_rng(seed)
    values = series(rng, 200, steps={40: 0.1}, cv=0.01)
    for n in (60, 90, 140, 200):
        assert any(abs(i - 40) <= 1 for i in indices(detect(values[:n])))


@settings(max_examples=40, deadline=None)
@given(seed=seeds, order=st.randoms(use_true_random=False))
def test_points_may_arrive_in_any_order(seed, order):
    values = stepped(seed, Noise.GAUSSIAN, n=40)
    figures = [
        Figure(commit_id=100 + i, position=i, value_s=float(v), half_width_s=float(v) * 0.01, run_id=i)
        for i, v in enumerate(values)
    ]
    shuffled = figures[:]
    order.shuffle(shuffled)
    arrived, straight = to_points(shuffled), to_points(figures)
    assert arrived == straight
    assert indices(detect([p.value_s for p in arrived])) == indices(detect(values))


@settings(max_examples=80, deadline=None)
@given(values=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=80))
def test_any_positive_series_gets_an_answer_that_covers_it(values):
    found = detect(values)
    assert sum(level.n for level in found.levels) == len(values)
    assert [level.start for level in found.levels[1:]] == indices(found)
    assert all(0 < c.p_value <= 1 or c.p_value == 0 for c in found.changes)
    assert all(level.n >= 3 for level in found.levels) or not found.changes


def test_quiet_series_of_every_kind_seldom_alarm():
    rng = np.random.default_rng(5)
    points = alarms = 0
    for kind, n in itertools.product([k for k in KINDS if k is not Noise.TREND], (30, 100, 300)):
        for _ in range(25):
            points += n
            alarms += len(detect(series(rng, n, steps={}, cv=0.01, kind=kind)).changes)
    assert 1000 * alarms / points <= 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_five_sd_is_found_in_every_kind_of_noise(kind):
    found = 0
    for seed in range(40):
        got = indices(detect(stepped(seed, kind, effect=0.05)))
        found += any(abs(i - 60) <= 3 for i in got)
    assert found >= 38


def test_spikes_are_no_steps():
    values = series(np.random.default_rng(0), 100, steps={}, cv=0.01)
    values[[20, 21, 50, 70, 71, 72]] *= 2
    assert indices(detect(values)) == []


def test_equal_values_with_one_jump_show_it_at_the_third_point():
    assert indices(detect([0.01] * 10 + [0.012] * 2)) == []
    assert indices(detect([0.01] * 10 + [0.012] * 3)) == [10]


def test_points_with_large_errors_weigh_less():
    rng = np.random.default_rng(2)
    sd = np.where(rng.random(120) < 0.3, 0.10, 0.005)
    values = np.exp(sd * rng.standard_normal(120)) * np.where(np.arange(120) < 60, 1.0, 1.02)
    blind, told = detect(values), detect(values, se=sd * values)
    assert [abs(i - 60) <= 3 for i in indices(told)] == [True]
    width = [c.effect_high - c.effect_low for c in told.changes]
    assert not blind.changes or blind.changes[0].effect_high - blind.changes[0].effect_low > width[0]


def test_claimed_errors_that_explain_nothing_do_not_weigh():
    values = stepped(4, Noise.GAUSSIAN)
    claimed = values * np.random.default_rng(0).uniform(0.0, 0.03, values.size)
    assert indices(detect(values, se=claimed)) == indices(detect(values))


def test_hosts_that_alternate_are_levelled_before_the_search():
    rng = np.random.default_rng(7)
    hosts = rng.integers(0, 2, 100)
    values = (
        np.exp(0.004 * rng.standard_normal(100))
        * np.where(hosts == 1, 1.1, 1.0)
        * np.where(np.arange(100) < 60, 1, 1.03)
    )
    found = detect(values, hosts=hosts)
    assert [abs(i - 60) <= 2 for i in indices(found)] == [True]
    assert (1 + found.host_offsets[1]) / (1 + found.host_offsets[0]) == pytest.approx(1.1, rel=0.01)


def test_a_host_that_takes_over_for_good_keeps_its_values():
    values = series(np.random.default_rng(1), 60, steps={30: 0.1}, cv=0.01)
    found = detect(values, hosts=np.where(np.arange(60) < 30, 0, 1))
    assert indices(found) == [30]
    assert found.host_offsets == {}


def test_a_tail_call_is_the_same_function_on_the_last_points():
    values = series(np.random.default_rng(3), 900, steps={880: 0.1}, cv=0.01)
    same = detect(values[-TAIL_POINTS:], settings=TAIL)
    assert (
        [c.index for c in detect_tail(values).changes] == [c.index + 900 - TAIL_POINTS for c in same.changes] == [880]
    )


def test_an_alarm_is_raised_once_and_in_time():
    values = series(np.random.default_rng(3), 160, steps={60: 0.1}, cv=0.01)
    early = detect(values[:70])
    assert [c.index for c in new_alarms(early, [])] == [60]
    assert new_alarms(early, [58]) == ()
    assert new_alarms(detect(values[: 62 + LATE_POINTS]), []) == ()


def test_steps_that_a_line_explains_as_well_seldom_alarm():
    found = alarms = 0
    for seed in range(60):
        noise = 0.01 * np.random.default_rng(seed).standard_normal(60)
        steps = detect(np.exp(np.linspace(0, 0.04, 60) + noise), settings=DetectorSettings(trend_cost=1000.0))
        found += len(steps.changes)
        alarms += len(new_alarms(steps, []))
    assert found >= 30
    assert alarms <= 0.3 * found
