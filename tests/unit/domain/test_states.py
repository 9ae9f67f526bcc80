"""No use case invents a transition."""

from __future__ import annotations

import pytest

from service.domain.severity import at_least, severity_of
from service.domain.states import (
    FINAL_RUN_STATES,
    IllegalMoveError,
    RegressionState,
    RunState,
    check_regression_move,
    check_run_move,
)


def test_a_reported_run_stays_reported():
    for state in RunState:
        with pytest.raises(IllegalMoveError, match="reported cannot become"):
            check_run_move(RunState.REPORTED, state)


def test_final_states_are_those_that_bring_no_more_measurements():
    assert {RunState.REPORTED, RunState.FAILED, RunState.ABANDONED, RunState.SKIPPED} == FINAL_RUN_STATES


def test_a_closed_regression_may_come_back_and_nothing_else():
    for closed in (RegressionState.FIXED, RegressionState.EXPECTED, RegressionState.NOT_REAL):
        check_regression_move(closed, RegressionState.CONFIRMED)
        with pytest.raises(IllegalMoveError):
            check_regression_move(closed, RegressionState.ACKNOWLEDGED)


def test_an_unconfirmed_regression_cannot_be_acknowledged():
    with pytest.raises(IllegalMoveError, match="detected cannot become acknowledged"):
        check_regression_move(RegressionState.DETECTED, RegressionState.ACKNOWLEDGED)


@pytest.mark.parametrize(("effect", "severity"), [(0.02, "low"), (-0.06, "medium"), (0.14, "high"), (0.39, "critical")])
def test_severity_follows_the_size_in_either_direction(effect, severity):
    assert severity_of(effect) == severity


def test_a_floor_lets_through_what_reaches_it():
    assert at_least("high", "medium")
    assert at_least("medium", "medium")
    assert not at_least("low", "medium")
