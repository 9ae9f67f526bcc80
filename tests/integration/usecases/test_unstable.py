"""A measurement whose processes lie far apart for its series is flagged, and shown so."""

from __future__ import annotations

from sqlalchemy import select

from service.store.tables import Measurement
from tests.simulated_runner import WORKLOADS
from tests.story import Planted, Story


def test_a_point_whose_processes_lie_three_times_as_far_apart_is_unstable(sessions):
    one = dict(list(WORKLOADS.items())[:1])
    story = Story(sessions, [Planted()] * 9, seed=5, options={"workloads": one, "process_sd": 0.004})
    for tip in range(1, 7):
        story.push(tip)
    story.device.process_sd = 0.08
    story.push(7)
    with sessions() as session:
        rows = session.scalars(select(Measurement).order_by(Measurement.id)).all()
        flagged = [row.commit_id for row in rows if "unstable" in row.flags]
        spreads = {row.commit_id: row.process_sd for row in rows}
    assert story.commit_id(7) in flagged
    assert not {story.commit_id(tip) for tip in range(1, 7)} & set(flagged)
    assert spreads[story.commit_id(7)] > 3 * spreads[story.commit_id(6)]
