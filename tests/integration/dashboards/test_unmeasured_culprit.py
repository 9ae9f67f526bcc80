"""Evidence of a story from reports to a named commit: one measurement for a size, and a culprit without one of its own."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from dashboards.evidence import gather
from service.contract import RunReason
from service.store.tables import Bisection, Measurement, Regression, Run
from tests.story import Planted, Story


@pytest.fixture
def found(sessions, engine):
    """The evidence of a slowdown at commit 8, for which the documentation commit at the tip stood."""
    plans = [Planted()] * 13
    plans[8] = Planted({"moe": 1.2})
    plans[9] = plans[10] = Planted(docs=True)
    story = Story(sessions, plans, seed=51)
    for tip in (2, 4, 6, 10):
        story.push(tip)
    assert story.found() == {8: "attributed"}
    with Session(engine) as session:
        yield gather(session, session.scalars(select(Regression.id)).one())


def test_evidence_of_a_culprit_that_a_documentation_commit_stood_for(found):
    assert found.before
    assert found.after
    assert {side.run_id for side in found.before} == {side.run_id for side in found.after}
    assert all(side.wall_s for side in (*found.before, *found.after))


def test_levels_effect_and_pairs_are_of_the_run_that_confirmed_the_change(found, engine):
    step = found.headline
    with Session(engine) as session:
        run = session.get_one(Run, step.confirmed_run_id)
        levels = session.scalars(
            select(Measurement.value_s)
            .where(Measurement.run_id == run.id, Measurement.series_id == step.series_id)
            .order_by(Measurement.commit_id)
        ).all()
    assert run.reason == RunReason.CONFIRM
    assert step.confirmed_pairs == 6
    assert step.before_s == levels[0]
    assert step.after_s == pytest.approx(step.before_s * (1 + step.effect))
    assert step.after_s == pytest.approx(levels[1], rel=0.02)
    assert step.effect == found.row.effect


def test_the_searched_range_stays_and_what_it_cost_is_counted_once(found, engine):
    with Session(engine) as session:
        spent = dict(session.execute(select(Run.id, Run.device_s).where(Run.reason != RunReason.PUSH)).all())
        budget_used = session.scalars(select(Bisection.spent_s)).one()
    assert [commit.position for commit in found.commits] == [6, 7, 8, 9, 10]
    assert found.cost.total_s == pytest.approx(sum(spent.values()))
    assert found.cost.total_s == pytest.approx(budget_used)
    assert found.cost.confirming_s == pytest.approx(spent[found.headline.confirmed_run_id])
    bad_end = found.measured[found.commits[-1].sha][0]
    assert bad_end.against_sha == found.commits[0].sha
    assert bad_end.low < 0.2 < bad_end.high
