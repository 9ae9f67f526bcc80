"""Commits with identical machine code: no timing, no alarm, no blame; and searches that need fewer times for it."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.contract import MeasurementStatus, RunReason
from service.domain.states import Direction
from service.store import schema
from service.store.engine import make_engine, make_sessions
from service.store.tables import ChangePoint, Measurement, Run
from tests.story import Planted, Story

QUIET = Planted()
SETTLING = {"reads_code": True, "settles": True}


@pytest.fixture
def fresh_sessions(empty_database_url):
    """A second service with a store of its own."""
    engine = make_engine(empty_database_url)
    schema.upgrade(engine)
    yield make_sessions(engine)
    engine.dispose()


def line(count, **planted):
    plans = [QUIET] * count
    for name, plan in planted.items():
        plans[int(name[1:])] = plan
    return plans


def statuses(story, reason):
    with story.sessions() as session:
        query = select(Measurement.status).join(Run, Run.id == Measurement.run_id).where(Run.reason == reason)
        return set(session.scalars(query))


def reasons(story):
    with story.sessions() as session:
        return [row.withdrawn_reason for row in session.scalars(select(ChangePoint)) if row.withdrawn_at]


@pytest.mark.parametrize(("audits", "timed"), [(False, 0), (True, None)])
def test_identical_code_that_measures_apart_takes_no_timing_and_no_alarm(sessions, audits, timed):
    """From commit 8 on the machine alone makes everything slower, also in the interleaved run of the audit."""
    story = Story(sessions, line(14), seed=21, options=SETTLING | {"audits": audits})
    story.device.untold = dict.fromkeys(story.shas[8:], 1.3)
    for tip in (1, 3, 5, 7):
        story.push(tip)
    before = story.device.timed
    story.order(9)
    story.step()
    assert story.run_count(RunReason.CONFIRM) >= 1
    pushed = story.device.timed
    assert pushed > before
    story.work()
    if timed is not None:
        assert story.device.timed - pushed == timed
        assert statuses(story, RunReason.CONFIRM) == {MeasurementStatus.IDENTICAL}
    for tip in (11, 13):
        story.push(tip)
    assert story.found() == story.found(Direction.IMPROVEMENT) == {}
    assert story.told() == []
    assert reasons(story)
    assert all("identical code" in reason for reason in reasons(story))


def test_without_the_code_the_same_machine_would_have_alarmed(sessions):
    story = Story(sessions, line(14), seed=21)
    story.device.untold = dict.fromkeys(story.shas[8:], 1.3)
    for tip in (1, 3, 5, 7, 9, 11, 13):
        story.push(tip)
    assert story.found() != {}


@pytest.mark.parametrize("seed", range(3))
def test_a_search_settles_probes_by_their_code_and_names_the_same_commit(sessions, seed):
    plans = line(24, c11=Planted({"gemm": 1.15}), c15=Planted({"moe": 1.2}))
    story = Story(sessions, plans, seed=30 + seed, options=SETTLING)
    for tip in (2, 4, 6, 19, 21, 23):
        story.push(tip)
    assert story.found() == {11: "attributed", 15: "attributed"}
    assert MeasurementStatus.IDENTICAL in statuses(story, RunReason.BISECTION)


def test_settled_probes_cost_less_than_timed_ones(sessions, fresh_sessions):
    plans = line(24, c11=Planted({"gemm": 1.15}))
    spent = []
    for options, store in ((SETTLING, sessions), ({}, fresh_sessions)):
        story = Story(store, plans, seed=40, options=options)
        for tip in (2, 4, 6, 19, 21, 23):
            story.push(tip)
        assert story.found() == {11: "attributed"}
        spent.append(story.device.timed)
    assert spent[0] < spent[1]
