"""A frozen baseline, steps that add up, levels of lived-in series: nothing clears itself, nothing hides behind it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select

from service.contract import RunReason
from service.domain.states import Direction, RegressionState
from service.store.pages.overview import SeriesState, series_rows, state_counts
from service.store.tables import Regression, Repository, Series
from service.usecases import life
from service.usecases.triage import Decision, decide
from tests.simulated_runner import WORKLOADS
from tests.story import Planted, Story

GEMM = "gemm_f32[k=512,m=512,n=512]"
ONE = {GEMM: WORKLOADS[GEMM]}


def tell(sessions, *, seed, length=40, workloads=None, **planted) -> Story:
    plans = [Planted()] * length
    for name, plan in planted.items():
        plans[int(name[1:])] = plan
    return Story(sessions, plans, seed=seed, options={"workloads": workloads or ONE})


def word(story) -> str | None:
    with story.sessions() as session:
        return session.scalars(select(Series.verdict)).one()


def settings(story, **detection):
    with story.sessions.begin() as session:
        session.get_one(Repository, story.repository_id).settings = {"detection": detection}


def test_a_loss_stays_open_for_days_of_points_at_the_new_level(sessions):
    story = tell(sessions, seed=80, c8=Planted({"gemm": 1.14}))
    for tip in (2, 4, 6, *range(10, 40, 2)):
        story.push(tip)
    assert story.found() == {8: "attributed"}
    assert word(story) == "regression"
    assert [event for _, event in story.told()].count("opened") == 2  # once a channel, not once a day


def test_a_worse_step_inside_an_open_regression_is_found_as_well(sessions):
    story = tell(sessions, seed=81, c8=Planted({"gemm": 1.14}), c21=Planted({"gemm": 1.12}))
    for tip in (2, 4, 6, *range(10, 30, 2)):
        story.push(tip)
    assert story.found() == {8: "attributed", 21: "attributed"}


def test_steps_below_the_floor_alarm_when_they_add_up(sessions):
    story = tell(sessions, seed=82, c11=Planted({"gemm": 1.042}), c21=Planted({"gemm": 1.042}))
    settings(story, min_effect=0.05)
    for tip in range(1, 21, 2):
        story.push(tip)
    assert story.found() == {}
    for tip in range(21, 37, 2):
        story.push(tip)
    assert story.found()
    assert set(story.found()) <= {11, 21}  # one of the two, or both, by what the search can prove
    assert word(story) == "regression"


def test_a_gain_of_thirty_per_cent_does_not_hide_a_later_loss_of_eight(sessions):
    story = tell(sessions, seed=83, c8=Planted({"gemm": 0.7}), c19=Planted({"gemm": 1.09}))
    for tip in (2, 4, 6, *range(10, 26, 2)):
        story.push(tip)
    assert story.found() == {19: "attributed"}
    assert story.found(Direction.IMPROVEMENT) == {8: "attributed"}


def test_a_machine_with_two_levels_is_called_bimodal_and_pages_nobody(sessions):
    story = tell(sessions, seed=84)
    for number, tip in enumerate(range(1, 33)):
        story.device.host_factor = {"gemm": 1.17} if number % 2 else {}
        story.push(tip)
    assert story.told() == []
    assert word(story) == "bimodal"


def test_every_series_says_its_noise_what_it_would_see_and_how_often_it_errs(sessions):
    story = tell(sessions, seed=85, workloads=WORKLOADS)
    for tip in (1, 3, 5, 7, 9):
        story.push(tip)
    with story.sessions() as session:
        for row in series_rows(session):
            if not row.control:
                facts = row.detection
                assert 0 < facts["noise"] < facts["detectable"] < 0.2
                assert facts["floor"] == pytest.approx(0.02)
                assert 0 < facts["false_alarm_rate"] < 0.01


def states(story) -> set[str]:
    with story.sessions() as session:
        return {row.state for row in series_rows(session)}


def test_a_series_without_a_baseline_or_too_noisy_to_see_five_per_cent_is_unguarded(sessions):
    story = tell(sessions, seed=86)
    story.push(1)
    assert states(story) == {SeriesState.UNGUARDED}
    story.device.process_sd = 0.15
    for tip in (3, 5, 7, 9, 11):
        story.push(tip)
    assert states(story) == {SeriesState.UNGUARDED}


def test_a_failing_series_is_listed_and_its_loss_is_still_found_when_it_works_again(sessions):
    story = tell(sessions, seed=87, c9=Planted(wrong="gemm"), c12=Planted({"gemm": 1.2}))
    for tip in (2, 4, 6, 8):
        story.push(tip)
    assert states(story) == {SeriesState.QUIET}
    story.push(9)
    with story.sessions() as session:
        assert state_counts(session)[SeriesState.FAILING] == 1
    story.push(14)
    assert story.found() == {12: "attributed"}


def test_a_night_that_brings_other_workloads_ends_no_series_of_the_day(sessions):
    story = tell(sessions, seed=88)
    for tip in (1, 3, 5, 7):
        story.push(tip)
    story.device.workloads = {"moe_f32[n=9]": ("moe_f32", "moe", 1e-3)}
    story.push(9, reason=RunReason.NIGHTLY)
    with story.sessions() as session:
        reasons = session.scalars(select(Series.verdict_reason)).all()
    assert not any("data stop" in reason for reason in reasons)


def test_an_accepted_loss_is_listed_as_unguarded_until_the_acceptance_ends(sessions):
    story = tell(sessions, seed=89, c8=Planted({"gemm": 1.14}))
    for tip in (2, 4, 6, 10, 12, 14):
        story.push(tip)
    with story.sessions.begin() as session:
        open_id = session.scalars(select(Regression.id)).one()
        decision = Decision(
            state=RegressionState.EXPECTED,
            actor="ada",
            assignee="bo",
            note="needed",
            expires_at=story.now + timedelta(days=7),
        )
        decide(session, ids=[open_id], decision=decision, now=story.now)
    story.push(16)
    assert states(story) == {SeriesState.UNGUARDED}
    assert word(story) == "no_change"  # from the accepted level on it is watched for the next step
    with story.sessions.begin() as session:
        life.expire(session, now=story.now + timedelta(days=8))
    assert states(story) == {SeriesState.REGRESSED}


def test_a_figure_faster_than_the_device_is_implausible_and_never_a_baseline(sessions):
    story = tell(sessions, seed=90)
    story.device.device = "NVIDIA H200 141GB HBM3e"
    for tip in (1, 3, 5, 7):
        story.push(tip)
    assert word(story) == "no_change"
    story.device.host_factor = {"gemm": 1e-5}  # a kernel that did nothing
    story.push(9)
    assert word(story) == "implausible"
    assert states(story) == {SeriesState.UNGUARDED}
    story.device.host_factor = {}
    story.push(11)
    assert word(story) == "no_change"
    assert story.told() == []
