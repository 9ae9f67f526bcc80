"""Whatever dies when: the same commit is named, and each message arrives once."""

from __future__ import annotations

import pytest

from tests.faults import CULPRIT, FaultyStory
from tests.peers import Peers


@pytest.mark.parametrize("seed", [1, 2])
def test_deaths_at_random_moments_change_no_verdict_and_lose_or_double_no_message(sessions, tmp_path, seed):
    peers = Peers(tmp_path / "caught")
    try:
        ending = FaultyStory(sessions, peers, seed=seed, chance=0.12).play()
    finally:
        peers.close()
    assert sum(ending.deaths.values()) >= 5
    assert ending.found == {CULPRIT: "attributed"}
    assert [event for _, event in ending.told] == ["attributed", "opened"] * 2
    assert [kind for kind, _ in ending.caught] == ["email", "email", "slack", "slack"]
    assert sum("Culprit: " in title for _, title in ending.caught) == 2
