"""News that is about no regression stands on the messages page like any other."""

from __future__ import annotations

from tests.story import Planted, Story


def test_a_broken_commit_is_listed_among_the_messages(sessions, client):
    plans = [Planted()] * 6
    plans[3] = Planted(wrong="moe")
    story = Story(sessions, plans, seed=5)
    for tip in (1, 3):
        story.push(tip)
    page = client.get("/messages")
    assert page.status_code == 200
    assert f"wrong_result:{story.commit_id(3)}" in page.text
    assert "/regressions/None" not in page.text
