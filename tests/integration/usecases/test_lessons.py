"""What users of other tools suffered, as small stories through the real store: false alarms, misses, order, units."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import func, select

from service.store.tables import Measurement, Series
from tests.simulated_runner import WORKLOADS
from tests.story import Planted, Story

GEMM = "gemm_f32[k=512,m=512,n=512]"
ONE = {GEMM: WORKLOADS[GEMM]}


def tell(sessions, *, seed, length=40, **planted) -> Story:
    plans = [Planted()] * length
    for name, plan in planted.items():
        plans[int(name[1:])] = plan
    return Story(sessions, plans, seed=seed, options={"workloads": ONE})


def alternate(story, factors, tips):
    for number, tip in enumerate(tips):
        story.device.host_factor = {"gemm": factors[number % len(factors)]}
        story.push(tip)


@pytest.mark.parametrize("high", [3.4 / 2.9, 25.5 / 22.5])
def test_one_binary_whose_values_alternate_between_two_levels_alarms_nobody(sessions, high):
    story = tell(sessions, seed=20)
    alternate(story, (1.0, high), range(1, 25))
    assert story.told() == []


def test_noise_of_a_fifth_over_a_long_quiet_history_alarms_nobody(sessions):
    story = tell(sessions, seed=21, length=50)
    rng = np.random.default_rng(21)
    for tip in range(1, 41):
        story.device.host_factor = {"gemm": float(np.exp(rng.normal(0, 0.2)))}
        story.push(tip)
    assert story.told() == []


def test_one_flaky_point_does_not_disarm_the_watch(sessions):
    story = tell(sessions, seed=22, c15=Planted({"gemm": 1.1}))
    for tip in (1, 3, 5, 7):
        story.push(tip)
    alternate(story, (1.6,), (9,))
    story.device.host_factor = {}
    for tip in (11, 13, 16, 18, 20, 22):
        story.push(tip)
    assert story.found() == {15: "attributed"}


def test_a_change_of_driver_in_the_middle_begins_no_alarm_and_loses_no_result(sessions):
    story = tell(sessions, seed=23)
    for tip in (1, 3, 5, 7):
        story.push(tip)
    story.device.facts = {"cpu": "simulated", "driver": "580"}
    for tip in (9, 11, 13):
        story.push(tip)
    assert story.told() == []
    with story.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Measurement)) == 7


@pytest.mark.parametrize(("field", "value"), [("comparable_key", "gpu:h200"), ("harness_epoch", 2), ("version", 2)])
def test_unlike_machines_and_rulers_never_share_a_series(sessions, field, value):
    story = tell(sessions, seed=24)
    story.push(1)
    old = getattr(story.device, field)
    for number, tip in enumerate(range(3, 13, 2)):
        setattr(story.device, field, (value, old)[number % 2])
        story.device.host_factor = {"gemm": (1.5, 1.0)[number % 2]}
        story.push(tip)
    assert story.told() == []
    with story.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Series)) == 2


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_a_doubling_is_found_in_microseconds_as_in_minutes(sessions, scale):
    story = tell(sessions, seed=25, c8=Planted({"gemm": 2.0}))
    benchmark, family, base_s = ONE[GEMM]
    story.device.workloads = {GEMM: (benchmark, family, base_s * scale)}
    for tip in (2, 4, 6, 10):
        story.push(tip)
    assert story.found() == {8: "attributed"}


def test_a_loss_and_a_gain_of_five_per_cent_nine_commits_apart_are_both_found(sessions):
    story = tell(sessions, seed=26, c9=Planted({"gemm": 1.07}), c19=Planted({"gemm": 1 / 1.07}))
    for tip in range(1, 30, 2):
        story.push(tip)
    assert set(story.found()) == {9}
    assert story.found() == {9: "fixed"}
