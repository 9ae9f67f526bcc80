"""Pairs of processes judge; launches within a process do not."""

from __future__ import annotations

import numpy as np
import pytest

from service.stats.paired import Blocks, paired_effect


def blocks(levels, *, per_process=3, canary=1.0, noise=0.0, rng=None):
    rng = rng or np.random.default_rng(0)
    process, median_s, canary_s = [], [], []
    for index, level in enumerate(levels):
        for _ in range(per_process):
            process.append(index)
            median_s.append(level * canary * float(np.exp(rng.normal(0, noise))))
            canary_s.append(canary)
    return Blocks(process=process, median_s=median_s, canary_s=canary_s)


def test_a_real_effect_is_found_with_its_size():
    rng = np.random.default_rng(1)
    base = np.exp(rng.normal(0, 0.005, 5))
    found = paired_effect(blocks(base), blocks(base * 1.14 * np.exp(rng.normal(0, 0.005, 5))))
    assert found is not None
    assert found.excludes_zero
    assert found.effect == pytest.approx(0.14, abs=0.02)
    assert found.low < 0.14 < found.high


def test_a_machine_that_slows_both_sides_of_a_pair_shows_no_effect():
    drift = np.array([1.0, 1.1, 1.2, 1.3, 1.4])
    found = paired_effect(blocks(drift), blocks(drift * 1.001))
    assert found is not None
    assert abs(found.effect) < 0.005


def test_a_slow_canary_is_divided_out():
    found = paired_effect(blocks([1.0] * 5, canary=1.0), blocks([1.0] * 5, canary=1.7))
    assert found is not None
    assert found.effect == pytest.approx(0.0, abs=1e-9)


def test_identical_code_alarms_in_about_one_of_a_hundred():
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(1000):
        base = blocks(np.exp(rng.normal(0, 0.02, 6)), per_process=20, noise=0.002, rng=rng)
        head = blocks(np.exp(rng.normal(0, 0.02, 6)), per_process=20, noise=0.002, rng=rng)
        found = paired_effect(base, head, confidence=0.99)
        assert found is not None
        alarms += found.excludes_zero
    assert alarms <= 22


def test_two_pairs_are_not_enough_for_a_word():
    assert paired_effect(blocks([1.0, 1.0]), blocks([2.0, 2.0])) is None


def test_only_processes_that_both_sides_have_are_paired():
    found = paired_effect(blocks([1.0, 1.0, 1.0, 9.0]), blocks([1.1, 1.1, 1.1]))
    assert found is not None
    assert found.pairs == 3
    assert found.effect == pytest.approx(0.1)
