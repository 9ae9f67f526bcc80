"""Many series, few commits: who is blamed, and how often."""

import numpy as np
import pytest

from service.stats.changepoint import detect
from service.stats.grouping import SeriesChange, discoveries, group
from service.stats.simulate import fleet


def change(series: str, commit: int, *, family: str = "gemm", effect: float = 0.1, z: float = 8.0, p: float = 1e-9):
    return SeriesChange(series=series, family=family, commit=commit, effect=effect, z=z, p_value=p)


def test_changes_a_commit_apart_become_one_alert_at_the_place_most_series_name():
    places = [40, 40, 40, 41, 39, 42]
    alerts = group([change(f"s{i}", c) for i, c in enumerate(places)], series=50, families=3)
    assert [(a.commit, a.votes, a.first, a.last) for a in alerts] == [(40, 6, 39, 42)]


def test_two_commits_far_apart_stay_two_alerts():
    alerts = group([change("a", 10), change("b", 10), change("c", 30)], series=50, families=3)
    assert [a.commit for a in alerts] == [10, 30]


def test_a_commit_that_moves_a_third_of_the_families_is_the_environment():
    alerts = group([change(f"s{i}", 10, family=f"f{i}") for i in range(4)], series=50, families=10)
    assert alerts[0].environment


def test_weak_changes_of_a_large_batch_are_no_discoveries():
    assert discoveries([1e-9, 0.02, 0.5], tests=1000) == [True, False, False]


def test_discovery_control_follows_benjamini_and_hochberg():
    assert discoveries([0.04, 0.01, 0.025, 0.9], tests=4, rate=0.05) == [False, True, True, False]


@pytest.mark.parametrize("seed", [11, 12])
def test_a_fleet_of_two_thousand_kernels_gives_few_alerts_and_every_true_commit_exactly(seed):
    simulated = fleet(np.random.default_rng(seed))
    changes = [
        change(str(k), c.index, family=simulated.families[k], effect=c.effect, z=c.z, p=c.p_value)
        for k, values in enumerate(simulated.values)
        for c in detect(values).changes
    ]
    alerts = group(changes, series=len(simulated.values), families=len(set(simulated.families)))
    named = {alert.commit for alert in alerts}
    assert set(simulated.truth) <= named
    assert len(alerts) <= 40
