"""A regression that is open while the environment changes keeps its baseline, its search and its end."""

from __future__ import annotations

from sqlalchemy import select

from service.contract import RunReason
from service.domain.states import RegressionState
from service.store.tables import Bisection, ChangePoint, Regression, Run, Series
from service.usecases.triage import Decision, decide
from tests.integration.usecases.test_bridges import move, tell, verdicts
from tests.story import Planted

SLOW = Planted({"moe": 1.3})
FAST = Planted({"moe": 1 / 1.3})


def claim_fixed(story):
    with story.sessions.begin() as session:
        found = session.scalars(select(Regression).where(Regression.direction == "regression")).one()
        decide(session, ids=[found.id], decision=Decision(state=RegressionState.FIXED, actor="ada"), now=story.now)
    story.work()


def note(story) -> str | None:
    with story.sessions() as session:
        return session.scalars(select(Regression.note).where(Regression.direction == "regression")).one()


def verified(story) -> bool:
    with story.sessions() as session:
        found = session.scalars(select(Regression).where(Regression.direction == "regression")).one()
        return found.verified_at is not None


def opened(sessions, **planted):
    """A loss at commit 6, told in the old environment, which then changes with commit 9."""
    story = tell(sessions, *range(1, 9), c6=SLOW, **planted)
    assert story.found() == {6: "attributed"}
    move(story)
    story.push(9)
    return story


def test_a_fix_is_verified_in_the_new_environment_against_the_old_baseline(sessions):
    story = opened(sessions, c10=FAST)
    story.order(10, reason=RunReason.PUSH)
    story.measure()  # the fix is measured, but nobody has looked at it yet
    claim_fixed(story)
    with story.sessions() as session:
        run = session.scalars(select(Run).where(Run.reason == RunReason.VERIFY)).one()
        assert run.commit_id == story.commit_id(10)
    assert (story.found(), verified(story)) == ({6: "fixed"}, True)


def test_a_false_fix_is_seen_in_the_new_environment(sessions):
    story = opened(sessions)
    claim_fixed(story)
    assert story.found() == {6: "attributed"}
    assert "still at +" in note(story)


def test_a_fix_that_shows_in_the_new_environment_closes_the_regression_of_the_old_one(sessions):
    story = opened(sessions, c11=FAST)
    for tip in (10, 11, 12):
        story.push(tip)
    assert (story.found(), verified(story)) == ({6: "fixed"}, True)


def test_a_loss_that_comes_back_in_the_new_environment_opens_its_regression_again(sessions):
    story = opened(sessions, c11=FAST, c15=SLOW)
    for tip in range(10, 17):
        story.push(tip)
    assert story.found() == {15: "attributed"}
    with story.sessions() as session:
        assert session.scalars(select(Regression.life).where(Regression.direction == "regression")).all() == [2]


def test_an_open_regression_is_the_word_on_the_new_series_too(sessions):
    story = opened(sessions)
    assert {word for word, _ in verdicts(story).values()} == {"regression"}
    assert story.run_count(RunReason.CONFIRM) == 1  # taken over, not found and proved a second time


def test_it_stays_the_word_through_one_environment_after_the_other(sessions):
    story = opened(sessions)
    for tip, place in ((10, "newer"), (11, "newest"), (12, "newest")):
        move(story, place=place)
        story.push(tip)
    assert [word for word, _ in verdicts(story).values()] == ["regression"] * 4
    assert story.run_count(RunReason.CONFIRM) == 1
    claim_fixed(story)
    assert story.found() == {6: "attributed"}


def test_a_fix_behind_a_new_benchmark_version_cannot_be_told(sessions):
    story = opened(sessions)
    story.device.version_from = (10, 2)
    story.push(10)
    claim_fixed(story)
    assert (story.found(), verified(story)) == ({6: "fixed"}, False)
    assert "cannot tell" in note(story)


def test_a_suspicion_is_settled_by_a_run_in_the_new_environment(sessions):
    story = tell(sessions, *range(1, 9), c9=SLOW)
    story.order(9)
    story.analyse(story.measure())  # suspected; the interleaved run waits
    move(story)
    story.work()
    assert story.found() == {9: "attributed"}


def test_a_search_goes_on_in_the_new_environment(sessions):
    story = tell(sessions, 1, 2, 3, 4, c9=SLOW)
    story.order(14)
    story.analyse(story.measure())
    story.step()  # proved between 4 and 14; the first probe waits
    move(story)
    story.work()
    assert story.found() == {9: "attributed"}
    with story.sessions() as session:
        assert session.scalars(select(Bisection.state)).all() == ["done"]
        change = session.scalars(select(ChangePoint).where(ChangePoint.regression_id.is_not(None))).one()
        assert session.get_one(Series, change.series_id).comparable_key == "cpu:simulated"
