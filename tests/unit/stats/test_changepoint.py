"""The detector on series whose truth is known, and what must not change its answer."""

import numpy as np
import pytest

from service.stats.changepoint import detect, detect_many, detect_tail


def noisy(n: int, *, steps: dict[int, float], cv: float = 0.01, seed: int = 1, base: float = 5e-5) -> np.ndarray:
    level = np.ones(n)
    for at, effect in steps.items():
        level[at:] *= 1 + effect
    return base * level * np.exp(cv * np.random.default_rng(seed).standard_normal(n))


def indices(values, **kw) -> list[int]:
    return [c.index for c in detect(values, **kw).changes]


def test_a_clear_step_is_found_where_it_is_with_its_size():
    change = detect(noisy(60, steps={40: 0.05})).changes[0]
    assert abs(change.index - 40) <= 1
    assert change.effect_low < 0.05 < change.effect_high
    assert change.before == pytest.approx(5e-5, rel=0.01)
    assert change.z > 0
    assert change.p_value < 1e-4


@pytest.mark.parametrize("before", [6, 7, 9])
def test_a_short_history_shows_a_large_step_at_its_third_point(before):
    found = sum(indices(noisy(before + 3, steps={before: 0.14}, seed=s)) == [before] for s in range(200))
    assert found >= 180


def test_a_short_quiet_history_shows_nothing():
    alarms = sum(len(indices(noisy(n, steps={}, seed=s))) for n in (3, 6, 8, 10, 12) for s in range(400))
    assert alarms <= 2


@pytest.mark.parametrize(("bad", "index"), [(float("nan"), 2), (float("inf"), 1), (-1.0, 0), (0.0, 3)])
def test_a_point_that_is_no_measurement_is_refused_by_its_place(bad, index):
    values = noisy(10, steps={})
    values[index] = bad
    with pytest.raises(ValueError, match=f"point {index} is"):
        detect(values)


def test_an_empty_series_is_refused():
    with pytest.raises(ValueError, match="at least one point"):
        detect([])


def test_many_series_answer_as_each_alone_in_any_order():
    series = [noisy(80, steps={50: 0.05} if s % 2 else {}, seed=s) for s in range(10)]
    alone = [detect(v) for v in series]
    assert detect_many(series[::-1])[::-1] == alone


def test_the_tail_counts_from_the_first_point():
    values = noisy(400, steps={100: 0.05, 350: 0.05})
    assert [abs(c.index - 350) <= 1 for c in detect_tail(values, start=100).changes] == [True]
