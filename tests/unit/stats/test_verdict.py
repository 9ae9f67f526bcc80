"""What is said about a series, and what is never blamed on a commit."""

import re

import numpy as np
import pytest

from service.stats.changepoint import detect
from service.stats.compare import compare
from service.stats.simulate import Noise, series
from service.stats.verdict import Better, Control, Floors, Surroundings, Verdict, follows_host, judge


def history(*, steps: dict[int, float], n: int = 60, cv: float = 0.01, seed: int = 0, kind: Noise = Noise.GAUSSIAN):
    return detect(series(np.random.default_rng(seed), n, steps=steps, cv=cv, kind=kind, base=5e-5))


@pytest.mark.parametrize(
    ("effect", "better", "verdict"),
    [
        (0.08, Better.LOWER, Verdict.REGRESSION),
        (-0.08, Better.LOWER, Verdict.IMPROVEMENT),
        (0.08, Better.HIGHER, Verdict.IMPROVEMENT),
        (-0.08, Better.HIGHER, Verdict.REGRESSION),
    ],
)
def test_the_sign_of_a_step_is_read_in_the_direction_of_the_metric(effect, better, verdict):
    judgement = judge(history(steps={40: effect}), better=better)
    assert judgement.verdict is verdict
    assert judgement.effect_low < effect < judgement.effect_high


def test_a_quiet_series_says_how_small_a_step_it_would_have_shown():
    judgement = judge(history(steps={}), better=Better.LOWER)
    assert judgement.verdict is Verdict.NO_CHANGE
    assert "would have been seen" in judgement.reason


def test_a_series_too_noisy_to_see_a_step_cannot_tell():
    noisy = judge(history(steps={}, cv=0.1), better=Better.LOWER)
    assert noisy.verdict is Verdict.CANNOT_TELL
    assert re.match(r"too noisy: only steps above \d+(\.\d)? % would be seen \(noise of ", noisy.reason)


def test_the_baseline_of_an_open_regression_is_frozen():
    found = history(steps={30: 0.12, 120: 0.03}, n=200)
    judgement = judge(found, better=Better.LOWER, open_since=30)
    assert judgement.verdict is Verdict.REGRESSION
    assert judgement.effect == pytest.approx(0.15, abs=0.02)


def test_an_open_regression_that_is_undone_is_one_no_longer():
    found = history(steps={30: 0.12, 60: 1 / 1.12 - 1}, n=100)
    assert judge(found, better=Better.LOWER, open_since=30).verdict is Verdict.NO_CHANGE


def test_small_steps_add_up_against_the_best_stable_level():
    found = history(steps={60: 0.04, 120: 0.04}, n=180, cv=0.004)
    judgement = judge(found, better=Better.LOWER, floors=Floors(min_effect=0.05))
    assert judgement.verdict is Verdict.REGRESSION
    assert "add up" in judgement.reason


def test_a_move_of_the_control_is_the_environment():
    around = Surroundings(controls=(Control("canary", 0.07, 0.002),))
    found = history(steps={40: 0.08})
    assert judge(found, better=Better.LOWER, surroundings=around).verdict is Verdict.ENVIRONMENT


def test_a_control_that_moves_the_other_way_explains_nothing():
    around = Surroundings(controls=(Control("canary", -0.07, 0.002),))
    found = history(steps={40: 0.08})
    assert judge(found, better=Better.LOWER, surroundings=around).verdict is Verdict.REGRESSION


@pytest.mark.parametrize("around", [Surroundings(families_moved=0.4), Surroundings(follows=("driver",))])
def test_a_move_of_everything_or_with_the_machine_is_the_environment(around):
    found = history(steps={40: 0.08})
    assert judge(found, better=Better.LOWER, surroundings=around).verdict is Verdict.ENVIRONMENT


def test_sides_that_differ_in_kind_are_never_compared():
    around = Surroundings(differing=("device model",))
    judgement = judge(history(steps={40: 0.5}), better=Better.LOWER, surroundings=around)
    assert judgement.verdict is Verdict.NOT_COMPARABLE
    assert "device model" in judgement.reason


def test_a_time_below_the_speed_of_light_is_implausible():
    judgement = judge(history(steps={40: -0.9}), better=Better.LOWER, surroundings=Surroundings(bound=1e-5))
    assert judgement.verdict is Verdict.IMPLAUSIBLE


def test_a_straight_trend_is_drift_and_no_step():
    values = 1e-3 * np.exp(np.linspace(0, 0.1, 150) + 0.004 * np.random.default_rng(3).standard_normal(150))
    judgement = judge(detect(values), better=Better.LOWER)
    assert judgement.verdict is Verdict.DRIFT
    assert judgement.effect == pytest.approx(0.1, abs=0.03)


def test_a_step_below_the_timer_is_no_change():
    found = history(steps={40: 0.05}, cv=0.002)
    floors = Floors(timer_step=2e-6, timer_steps=2)
    assert judge(found, better=Better.LOWER, floors=floors).verdict is Verdict.NO_CHANGE


def test_two_interleaved_levels_are_named_beside_the_verdict():
    values = (
        2.9e-3
        * np.where(np.arange(60) % 2, 3.4 / 2.9, 1.0)
        * np.exp(0.002 * np.random.default_rng(0).standard_normal(60))
    )
    judgement = judge(detect(values), better=Better.LOWER)
    assert judgement.verdict is not Verdict.REGRESSION
    assert Verdict.BIMODAL in judgement.also


def test_hosts_that_change_for_good_are_told_from_hosts_that_alternate():
    assert follows_host([1, 1, 1, 2, 2], 3)
    assert not follows_host([1, 2, 1, 2, 1], 3)


def test_a_comparison_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no figures"):
        compare([], [1.0], better=Better.LOWER)
    with pytest.raises(ValueError, match="figure 1 of 'after'"):
        compare([1.0], [1.0, float("nan")], better=Better.LOWER)


def test_repeated_figures_that_overlap_widely_cannot_tell():
    judgement = compare([1.0, 1.2, 0.9], [1.1, 0.95, 1.3], better=Better.LOWER)
    assert judgement.verdict is Verdict.CANNOT_TELL
