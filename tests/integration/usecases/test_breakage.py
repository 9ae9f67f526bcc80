"""A commit that computes wrong results, or does not build, is told once, and once when it is over."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from service.contract import RunReason
from service.store.tables import Channel, Notification, Regression
from service.usecases import alert, breakage
from tests.peers import Peers, deliver, point_channels
from tests.story import Planted, Story


def told(story) -> list[tuple[str, str, str]]:
    """(channel, event, subject with the commit's position) of the news that is about no regression."""
    position_of = {story.commit_id(position): position for position in range(len(story.line))}
    with story.sessions() as session:
        rows = session.execute(
            select(Channel.name, Notification.event, Notification.subject)
            .join(Channel, Channel.id == Notification.channel_id)
            .where(Notification.subject.is_not(None))
            .order_by(Notification.id)
        )
        found = [(name, event, *subject.split(":")) for name, event, subject in rows]
        return [(name, event, f"{kind} {position_of[int(commit)]}") for name, event, kind, commit in found]


def line(**planted) -> list[Planted]:
    plans = [Planted()] * 12
    for place, plan in planted.items():
        plans[int(place[1:])] = plan
    return plans


def test_a_wrong_result_is_told_once_however_long_it_lasts_and_once_when_it_is_over(sessions):
    wrong = Planted(wrong="moe")
    story = Story(sessions, line(_4=wrong, _5=wrong, _6=wrong), seed=5)
    for tip in (2, 4, 5, 6):
        story.push(tip)
    both = [(name, "broken", "wrong_result 4") for name in ("email", "slack_webhook")]
    assert told(story) == both
    story.push(7)
    story.push(8)
    assert told(story) == both + [(name, "repaired", "wrong_result 4") for name in ("email", "slack_webhook")]


def test_a_second_kernel_that_breaks_meanwhile_is_news(sessions):
    story = Story(sessions, line(_4=Planted(wrong="moe"), _5=Planted(wrong="attention")), seed=5)
    for tip in (2, 4, 5, 6):
        story.push(tip)
    mine = [(event, subject) for name, event, subject in told(story) if name == "email"]
    assert mine == [
        ("broken", "wrong_result 4"),
        ("repaired", "wrong_result 4"),  # commit 5 computes moe right again
        ("broken", "wrong_result 5"),
        ("repaired", "wrong_result 5"),
    ]


def test_a_commit_that_does_not_build_is_told_once_and_a_later_one_that_builds_ends_it(sessions):
    story = Story(sessions, line(_4=Planted(broken=True), _5=Planted(broken=True)), seed=5)
    for tip in (2, 4, 5, 7):
        story.push(tip)
    mine = [(event, subject) for name, event, subject in told(story) if name == "email"]
    assert mine == [("broken", "build_failed 4"), ("repaired", "build_failed 4")]


def test_what_only_a_backfill_of_an_older_commit_finds_is_no_news(sessions):
    story = Story(sessions, line(_4=Planted(wrong="moe")), seed=5)
    story.push(2)
    story.push(6)
    story.push(4, reason=RunReason.BACKFILL)
    assert told(story) == []


def test_looking_at_a_run_again_says_nothing_more(sessions):
    story = Story(sessions, line(_4=Planted(wrong="moe")), seed=5)
    story.push(2)
    story.order(4)
    run_id = story.measure()
    for _ in range(2):
        with sessions.begin() as session:
            breakage.after_report(session, run_id=run_id, now=story.now)
    assert len(told(story)) == 2


def test_its_end_is_a_reply_and_names_what_was_wrong(sessions, tmp_path):
    story = Story(sessions, line(_4=Planted(wrong="moe")), seed=5)
    for tip in (2, 4, 6):
        story.push(tip)
    peers = Peers(tmp_path / "caught")
    try:
        point_channels(story, peers)
        while deliver(story, peers):
            pass
        first, last = (message for message in peers.store.all() if message.kind == "email")
        slack = peers.titles("slack")
    finally:
        peers.close()
    assert "Wrong result: moe_f32[e=8,h=256,i=512,t=64]" in first.title
    assert "3 of 9 elements are off" in first.text
    assert f"/commits/{story.shas[4]}" in first.text
    assert "Right again: moe_f32" in last.title
    assert last.headers["In-Reply-To"] == first.headers["Message-ID"]
    assert [title.split(":")[0] for title in slack] == ["Wrong result", "Right again"]


@pytest.mark.parametrize(("events", "count"), [(["opened"], 0), (["broken"], 1)])
def test_only_channels_that_ask_for_it_hear_of_it_whatever_their_least_severity(sessions, events, count):
    story = Story(sessions, line(_4=Planted(wrong="moe")), seed=5)
    with sessions.begin() as session:
        for channel in session.scalars(select(Channel)):
            channel.events, channel.min_severity = events, "critical"
            channel.enabled = channel.kind == "email"
    for tip in (2, 4, 6):
        story.push(tip)
    assert len(told(story)) == count


def test_a_fleet_channel_hears_nothing_of_it(sessions):
    channel = Channel(config={"fleet": True}, events=["broken"], kind="email")
    assert not alert.wants_notice(channel, "broken")


def test_it_makes_no_regression(sessions):
    story = Story(sessions, line(_4=Planted(wrong="moe")), seed=5)
    for tip in (2, 4, 6):
        story.push(tip)
    with sessions() as session:
        assert session.scalars(select(Regression.id)).all() == []
