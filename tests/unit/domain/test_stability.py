"""Whether the processes of a measurement lie further apart than they used to."""

from __future__ import annotations

import math

import pytest

from service.contract import SampleBlock
from service.domain.stability import is_unstable, process_sd


def block(process, kernel_s, canary_s=1e-3, *, cpu=2.0):
    return SampleBlock(process, 0, (kernel_s,) * 3, (kernel_s * cpu,) * 3, canary_s, canary_s)


def test_the_spread_is_that_of_processes_divided_by_their_canaries():
    slow_machine = [block(0, 2e-3, 2e-3), block(1, 1e-3, 1e-3), block(2, 3e-3, 3e-3)]
    assert process_sd(slow_machine, clock="wall") == pytest.approx(0.0)
    levels = [math.exp(-0.02), 1.0, math.exp(0.02)]
    assert process_sd([block(i, x * 1e-3) for i, x in enumerate(levels)], clock="wall") == pytest.approx(0.02)


def test_blocks_of_one_process_count_as_one_and_two_processes_are_too_few():
    assert process_sd([block(0, 1e-3), block(0, 5e-3), block(1, 1e-3)], clock="wall") is None


def test_blocks_without_times_are_left_out():
    blocks = [block(0, 1e-3), block(1, 1e-3), block(2, 1e-3, 0.0)]
    assert process_sd(blocks, clock="wall") is None


@pytest.mark.parametrize(
    ("spread", "past", "unstable"),
    [
        (0.031, [0.01] * 5, True),
        (0.029, [0.01] * 5, False),
        (0.031, [0.01] * 4, False),  # too young a series
        (0.004, [0.001] * 9, False),  # too small to matter
        (None, [0.01] * 9, False),
    ],
)
def test_unstable_is_three_times_the_usual_spread_of_a_series_that_has_a_past(spread, past, unstable):
    assert is_unstable(spread, past) is unstable
