"""Order of arrival: out-of-order, backfilled, repeated and retracted points give the verdicts of the straight order."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import select

from service.contract import RunReason
from service.domain.states import Direction
from service.store.tables import ChangePoint, GitCommit, Run, Series, Workload
from service.usecases import detect
from service.usecases.policy import DetectionPolicy
from tests.simulated_runner import WORKLOADS
from tests.story import Planted, Story

TIPS = (1, 3, 5, 9, 11, 13)
TWO = {key: WORKLOADS[key] for key in ("gemm_f32[k=512,m=512,n=512]", "moe_f32[e=8,h=256,i=512,t=64]")}


def plan(*, length=16, **planted) -> list[Planted]:
    plans = [Planted()] * length
    for name, planted_here in planted.items():
        plans[int(name[1:])] = planted_here
    return plans


def record(story) -> tuple[dict, dict, list]:
    """Culprits with their state, the last word on each series, and the change points that stand."""
    with story.sessions() as session:
        words = dict(
            session.execute(select(Workload.key, Series.verdict).join(Series, Series.workload_id == Workload.id)).all()
        )
        steps = session.execute(
            select(Workload.key, GitCommit.position, ChangePoint.direction)
            .join(Series, Series.id == ChangePoint.series_id)
            .join(Workload, Workload.id == Series.workload_id)
            .join(GitCommit, GitCommit.id == ChangePoint.commit_id)
            .where(ChangePoint.withdrawn_at.is_(None))
            .order_by(Workload.key)
        ).all()
    return story.found(), words, [tuple(step) for step in steps]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_arrival_gives_the_verdict_of_the_straight_one(sessions, seed):
    story = Story(sessions, plan(c7=Planted({"gemm": 1.2})), seed=60 + seed, options={"workloads": TWO})
    order = list(TIPS) if seed == 0 else np.random.default_rng(seed).permutation(TIPS).tolist()
    for tip in order:
        story.push(int(tip), reason=RunReason.BACKFILL if seed % 2 else RunReason.PUSH)
    gemm, moe = sorted(TWO)
    assert record(story) == (
        {7: "attributed"},
        {gemm: "regression", moe: "no_change"},
        [(gemm, 7, "regression")],
    )


def test_a_backfilled_commit_lands_between_its_neighbours_and_is_looked_at(sessions):
    story = Story(sessions, plan(c7=Planted({"gemm": 1.2}), c8=Planted({"gemm": 1 / 1.2})), options={"workloads": TWO})
    for tip in (1, 3, 5, 9, 11):
        story.push(tip)
    assert story.found() == {}  # it came and went between two pushes
    story.push(7, reason=RunReason.BACKFILL)
    assert set(story.found()) == {7}
    assert set(story.found(Direction.IMPROVEMENT)) == {8}


def test_three_runs_of_one_commit_are_one_point_and_change_no_verdict(sessions):
    story = Story(sessions, plan(), seed=70, options={"workloads": TWO})
    for tip in (1, 3, 5, 5, 5):
        story.push(tip, reason=RunReason.MANUAL)
    with story.sessions() as session:
        assert {series.detection["points"] for series in session.scalars(select(Series))} == {3}
    assert story.told() == []


def test_a_step_that_rested_on_a_retracted_run_is_found_again_when_the_commit_is_measured_anew(sessions):
    story = Story(sessions, plan(c7=Planted({"gemm": 1.2})), seed=71, options={"workloads": TWO})
    for tip in (1, 3, 5, 9):
        story.push(tip)
    assert story.found() == {7: "attributed"}
    with story.sessions.begin() as session:
        ids = session.scalars(
            select(Run.id).join(GitCommit, GitCommit.id == Run.commit_id).where(GitCommit.position >= 6)
        ).all()
        for run_id in ids:
            detect.retract(session, run_id=run_id, reason="hot", actor="ada", now=story.now, policy=DetectionPolicy())
    assert record(story)[0] == {}
    assert record(story)[1][min(TWO)] == "no_change"
    story.push(9, reason=RunReason.MANUAL)
    assert [step[:2] for step in record(story)[2]] == [(min(TWO), 7)]


def test_a_retracted_fast_outlier_leaves_the_series_as_if_it_had_never_come(sessions):
    story = Story(sessions, plan(), seed=72, options={"workloads": TWO})
    for tip in (1, 3, 5):
        story.push(tip)
    story.device.host_factor = {"gemm": 1.3}
    story.push(7)
    story.device.host_factor = {}
    story.push(9)
    with story.sessions.begin() as session:
        odd = session.scalars(
            select(Run.id).join(GitCommit, GitCommit.id == Run.commit_id).where(GitCommit.position == 7)
        ).all()
        for run_id in odd:
            detect.retract(session, run_id=run_id, reason="fan", actor="ada", now=story.now, policy=DetectionPolicy())
    with story.sessions() as session:
        assert {series.detection["points"] for series in session.scalars(select(Series))} == {4}
    assert set(record(story)[1].values()) == {"no_change"}


def test_a_series_that_the_newest_run_no_longer_brings_says_where_its_data_stop(sessions):
    story = Story(sessions, plan(length=24), seed=73, options={"workloads": TWO})
    for tip in (1, 3, 5):
        story.push(tip)
    gone = min(TWO)
    renamed = {"gemm_new_f32[k=512]": ("gemm_new_f32", "gemm", 2e-3)}
    story.device.workloads = {key: value for key, value in TWO.items() if key != gone} | renamed
    story.push(9)
    with story.sessions() as session:
        said = dict(
            session.execute(
                select(Workload.key, Series.verdict_reason).join(Series, Series.workload_id == Workload.id)
            ).all()
        )
        assert said[gone].startswith("data stop at commit 5 (")
        assert "data stop" not in said[sorted(TWO)[1]]
        assert "points of a baseline" in said["gemm_new_f32[k=512]"]  # a new name is a new series
        assert session.scalars(select(Series).where(Series.predecessor_id.is_not(None))).all() == []
    story.push(7, reason=RunReason.BACKFILL)
    assert record(story)[1][gone] == "cannot_tell"
    assert story.told() == []


def test_a_run_of_some_workloads_ends_no_series(sessions):
    story = Story(sessions, plan(), seed=74, options={"workloads": TWO})
    for tip in (1, 3, 5):
        story.push(tip)
    with story.sessions.begin() as session:
        run = session.scalars(select(Run)).first()
        run.workload_keys = [min(TWO)]
    assert "data stop" not in str(record(story))
