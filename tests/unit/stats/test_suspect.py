"""One point may raise a suspicion; the noise of a few lucky points may not."""

from __future__ import annotations

import numpy as np
import pytest

from service.stats.suspect import SuspectRule, suspect


def test_a_step_of_14_per_cent_is_suspicious_at_its_first_point():
    found = suspect([1.0, 1.01, 0.99, 1.005], 1.14, se=0.005)
    assert found is not None
    assert found.effect == pytest.approx(0.137, abs=0.01)


def test_a_gain_is_as_suspicious_as_a_loss():
    found = suspect([1.0, 1.01, 0.99], 0.85)
    assert found is not None
    assert found.effect < 0


def test_the_scale_does_not_matter():
    small = suspect([5e-3, 5.02e-3, 4.98e-3], 10e-3)
    large = suspect([5.0, 5.02, 4.98], 10.0)
    assert small is not None
    assert large is not None
    assert small.z == pytest.approx(large.z)


def test_two_equal_points_do_not_make_the_next_one_suspicious():
    assert suspect([1.0, 1.0], 1.025) is None


def test_a_point_that_is_unsure_of_itself_is_not_suspicious():
    assert suspect([1.0, 1.01, 0.99, 1.0], 1.14, se=0.08) is None


def test_an_effect_below_the_floor_is_left_to_the_change_point_detector():
    quiet = [1.0] * 200
    assert suspect(quiet, 1.018, rule=SuspectRule(min_effect=0.02)) is None


def test_normal_noise_is_suspected_in_under_one_of_150_points():
    rng = np.random.default_rng(20)
    hits = 0
    for _ in range(2000):
        values = np.exp(rng.normal(0, 0.01, 9))
        hits += suspect(list(values[:8]), float(values[8])) is not None
    assert hits <= 13


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, 0.0])
def test_a_point_that_is_no_time_is_refused_with_its_value(bad):
    with pytest.raises(ValueError, match=r"finite and positive"):
        suspect([1.0], bad)


def test_no_baseline_is_refused():
    with pytest.raises(ValueError, match="at least one baseline point"):
        suspect([], 1.0)


def test_the_p_value_is_honest_on_quiet_series_of_any_length():
    rng = np.random.default_rng(7)
    everything = SuspectRule(z=0.0, min_effect=0.0)
    for n in (1, 3, 10, 40):
        series = np.exp(rng.normal(0, 0.01, (2000, n + 1)))
        p_values = [suspect(row[:-1], row[-1], rule=everything).p_value for row in series.tolist()]
        assert np.mean(np.array(p_values) < 0.05) < 0.08
        assert np.mean(np.array(p_values) < 0.001) < 0.005


def test_more_baseline_makes_the_same_step_less_likely_to_be_chance():
    few, many = suspect([1.0, 1.01], 1.1), suspect([1.0, 1.01] * 10, 1.1)
    assert few is not None
    assert many is not None
    assert many.p_value < few.p_value < 0.05
