"""A culprit that was never measured itself, because a neighbour with the same suite stood for it, keeps its evidence."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from dashboards.evidence import gather
from service.store.tables import Regression
from tests.story import Planted, Story


def test_evidence_of_a_culprit_that_a_documentation_commit_stood_for(sessions, engine):
    plans = [Planted()] * 13
    plans[8] = Planted({"moe": 1.2})
    plans[9] = plans[10] = Planted(docs=True)
    story = Story(sessions, plans, seed=51)
    for tip in (2, 4, 6, 10):
        story.push(tip)
    assert story.found() == {8: "attributed"}
    with Session(engine) as session:
        found = gather(session, session.scalars(select(Regression.id)).one())
    assert found is not None
    assert found.before
    assert found.after
    assert {side.run_id for side in found.before} == {side.run_id for side in found.after}
    assert all(side.wall_s for side in (*found.before, *found.after))
