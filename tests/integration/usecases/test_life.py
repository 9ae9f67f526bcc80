"""After it was told: fixes are verified by measuring, acceptances end, steps come back, bad runs are taken out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import select, update

from service.contract import RunReason
from service.domain.states import RegressionState
from service.store.tables import ChangePoint, Measurement, Notification, Regression, Run
from service.usecases import life
from service.usecases.triage import Decision, decide, split
from tests.story import Planted, Story

SLOW = Planted({"gemm": 1.2})
FAST = Planted({"gemm": 1 / 1.2})


def told(sessions, *, length=30, seed=31, **planted):
    plans = [Planted()] * length
    for name, plan in planted.items():
        plans[int(name[1:])] = plan
    story = Story(sessions, plans, seed=seed)
    for tip in (2, 4, 6, 10):
        story.push(tip)
    assert story.found() == {8: "attributed"}
    return story


def claim_fixed(story):
    with story.sessions.begin() as session:
        found = session.scalars(select(Regression)).one()
        decision = Decision(state=RegressionState.FIXED, actor="ada")
        decide(session, ids=[found.id], decision=decision, now=story.now)
    story.work()


def events(story):
    return [event for channel, event in story.told() if channel == story.told()[0][0]]


def test_a_fix_that_shows_in_a_push_is_told_once(sessions):
    story = told(sessions, c8=SLOW, c12=FAST)
    story.push(13)  # the fix shows itself in the next push, without anybody's word
    assert story.found() == {8: "fixed"}
    assert events(story) == ["opened", "attributed", "fixed"]
    with story.sessions() as session:
        assert session.scalars(select(Regression.verified_at).where(Regression.direction == "regression")).one()


def test_a_fix_that_is_none_opens_the_regression_again(sessions):
    story = told(sessions, c8=SLOW)
    claim_fixed(story)
    assert story.run_count(RunReason.VERIFY) == 1
    assert story.found() == {8: "attributed"}
    assert events(story) == ["opened", "attributed", "reopened"]
    with story.sessions() as session:
        assert "still at +" in session.scalars(select(Regression.note)).one()


def test_the_same_step_after_a_fix_reopens_the_old_regression_and_names_the_new_commit(sessions):
    story = told(sessions, c8=SLOW, c12=FAST, c18=SLOW)
    for tip in (13, 15, 20, 22):
        story.push(tip)
    assert story.found() == {18: "attributed"}
    assert events(story) == ["opened", "attributed", "fixed", "reopened", "attributed"]
    with story.sessions() as session:
        row = session.scalars(select(Regression).where(Regression.direction == "regression")).one()
        assert row.life == 2


def test_an_acceptance_ends_at_its_date(sessions):
    story = told(sessions, c8=SLOW)
    with story.sessions.begin() as session:
        found = session.scalars(select(Regression)).one()
        decision = Decision(
            state=RegressionState.EXPECTED,
            actor="ada",
            assignee="bo",
            note="needed for correctness",
            expires_at=story.now + timedelta(days=7),
        )
        decide(session, ids=[found.id], decision=decision, now=story.now)
        life.expire(session, now=story.now + timedelta(days=6))
    assert story.found() == {8: "expected"}
    with story.sessions.begin() as session:
        life.expire(session, now=story.now + timedelta(days=8))
    assert story.found() == {8: "attributed"}
    assert events(story)[-1] == "reopened"


def test_a_retracted_run_takes_back_what_rested_on_it_alone(sessions):
    story = told(sessions, c8=SLOW)
    with story.sessions() as session:
        ids = session.scalars(select(Run.id).where(Run.state == "reported")).all()
    with story.sessions.begin() as session:
        session.execute(update(Notification).values(state="sent"))  # people have heard of it
        for run_id in ids:
            life.retract(session, run_id=run_id, reason="the board was hot", actor="ada", now=story.now)
    assert story.found() == {}
    assert events(story)[-1] == "withdrawn"
    with story.sessions() as session:
        assert session.scalars(select(ChangePoint).where(ChangePoint.withdrawn_at.is_(None))).first() is None
        assert session.scalars(select(Measurement.id)).first() is not None  # nothing was deleted


def test_a_retracted_run_beside_good_ones_changes_no_verdict(sessions):
    story = told(sessions, c8=SLOW)
    with story.sessions.begin() as session:
        push = session.scalars(select(Run.id).where(Run.reason == "push").order_by(Run.id.desc())).first()
        life.retract(session, run_id=push, reason="somebody was on the box", actor="ada", now=story.now)
    assert story.found() == {8: "attributed"}


def test_retracting_without_a_reason_is_refused(sessions):
    story = told(sessions, c8=SLOW)
    with story.sessions.begin() as session, pytest.raises(ValueError, match="needs a reason"):
        life.retract(session, run_id=1, reason=" ", actor="ada", now=story.now)


def test_a_split_gives_some_series_a_regression_of_their_own(sessions):
    story = told(sessions, c8=SLOW)
    with story.sessions.begin() as session:
        source = session.scalars(select(Regression)).one()
        changes = session.scalars(select(ChangePoint).where(ChangePoint.regression_id == source.id)).all()
        other = split(session, regression_id=source.id, change_ids=[changes[0].id], actor="ada")
        assert other.id != source.id
        assert (other.good_commit_id, other.bad_commit_id) == (source.good_commit_id, source.bad_commit_id)
        with pytest.raises(ValueError, match="one that stays"):
            split(session, regression_id=other.id, change_ids=[changes[0].id], actor="ada")
