"""The tier of a workload is stored with its first report and follows the last."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import select

from service.contract import Tier
from service.store.tables import Workload
from tests.story import Planted, Story


def tiers(story) -> dict[str, str]:
    with story.sessions() as session:
        return dict(session.execute(select(Workload.key, Workload.tier)).all())


def test_a_workload_has_the_tier_of_its_last_report(sessions):
    story = Story(sessions, [Planted()] * 6, seed=2)
    measure = story.device._measure
    for tip, tier in ((1, Tier.WEEKLY), (3, Tier.NIGHTLY)):

        def measured(sha, key, *, tier=tier, **how):
            found = measure(sha, key, **how)
            return replace(found, tier=tier) if found.family == "moe" else found

        story.device._measure = measured
        story.push(tip)
        assert {tier for key, tier in tiers(story).items() if not key.startswith("moe")} == {"core"}
        assert {word for key, word in tiers(story).items() if key.startswith("moe")} == {str(tier)}
