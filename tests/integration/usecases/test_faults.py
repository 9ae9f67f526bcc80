"""Whatever is killed when: the same commit is named, and each message arrives once."""

from __future__ import annotations

from collections import Counter

from tests import kills
from tests.mortal import CHANNELS, CULPRIT

EVENTS = ("opened", "attributed")


def test_kill_9_changes_no_verdict_and_loses_or_doubles_no_message(database_url, tmp_path):
    """Every sender of a new message is killed before it hears that the peer has it, others wherever they are."""
    chances = kills.Chances(at_marks=4, refused=0.1, accepted=1.0)
    ending = kills.play(database_url, tmp_path / "caught", seed=1, chances=chances)
    assert ending.deaths.total() >= 4 + 1
    assert ending.found == {CULPRIT: "attributed"}
    assert ending.verdicts == ("culprit",)
    assert ending.told == tuple(sorted((kind, event) for kind in CHANNELS for event in EVENTS))
    assert Counter(event for _, event in ending.kept) == dict.fromkeys(EVENTS, len(CHANNELS))
    assert len(set(ending.kept)) == len(ending.kept)
    assert ending.sent_again >= len(EVENTS) * len(CHANNELS), "what was not answered comes again under its key"
    assert ending.threads == 1
