"""The outbox against a real mail server and a real HTTP peer: once each, in order, whatever dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random

import pytest
from sqlalchemy import select, update

from service.domain.states import NotificationState
from service.store.tables import Channel, Notification
from service.usecases import alert
from tests.peers import Peers, deliver, point_channels, states
from tests.story import Planted, Story


@pytest.fixture
def peers(tmp_path):
    opened = Peers(tmp_path / "caught")
    yield opened
    opened.close()


@pytest.fixture
def story(sessions):
    plans = [Planted()] * 14
    plans[9] = Planted({"moe": 1.15})
    told = Story(sessions, plans, seed=21)
    for tip in (2, 4, 6, 12):
        told.push(tip)
    assert told.found() == {9: "attributed"}
    return told


def test_each_channel_hears_of_the_regression_and_of_its_culprit_once(story, peers):
    point_channels(story, peers)
    deliver(story, peers)
    deliver(story, peers)
    assert states(story) == {"sent"}
    for kind in ("email", "slack"):
        titles = peers.titles(kind)
        assert len(titles) == 2
        assert "Culprit: moe_f32" in titles[1]


def test_the_second_mail_is_a_reply_to_the_first(story, peers):
    point_channels(story, peers)
    deliver(story, peers)
    first, second = (message for message in peers.store.all() if message.kind == "email")
    assert second.headers["In-Reply-To"] == first.headers["Message-ID"]


def test_a_bot_answers_in_the_thread_of_its_first_message(story, peers):
    with story.sessions.begin() as session:
        session.execute(
            update(Channel)
            .where(Channel.kind == "slack_webhook")
            .values(kind="slack_bot", config={"token": "xoxb-1", "channel": "#perf", "base_url": f"{peers.url}/api/"})
        )
    point_channels(story, peers)
    deliver(story, peers)
    first, second = (message for message in peers.store.all() if message.kind == "slack")
    assert first.payload.get("thread_ts") is None
    assert second.payload["thread_ts"].endswith(f".{first.number:06d}")


def test_eight_senders_at_once_send_each_message_once(story, peers):
    point_channels(story, peers)
    with ThreadPoolExecutor(8) as pool:
        sent = sum(pool.map(lambda _: deliver(story, peers), range(8)))
    sent += deliver(story, peers)
    assert sent == 4
    assert len(peers.store.all()) == 4


def test_a_reply_never_overtakes_its_opening(story, peers):
    point_channels(story, peers, slack_webhook={"url": "http://127.0.0.1:1/away"})
    deliver(story, peers)
    point_channels(story, peers)
    story.now += timedelta(hours=2)
    deliver(story, peers)
    titles = peers.titles("slack")
    assert len(titles) == 2
    assert titles[1].startswith("Culprit")


def test_a_peer_that_is_away_is_tried_later_and_one_that_refuses_is_not(story, peers):
    point_channels(
        story,
        peers,
        email={"to": ["team@example.org"], "smtp_url": "smtp://127.0.0.1:1"},
        slack_webhook={"url": f"{peers.url}/no-such-door"},
    )
    deliver(story, peers)
    with story.sessions() as session:
        rows = session.scalars(select(Notification).order_by(Notification.id)).all()
        by_state = {(row.channel_id, row.event): (row.state, row.error) for row in rows}
    opened = sorted(state for (_, event), (state, _) in by_state.items() if event == "opened")
    assert opened == ["failed", "pending"]
    assert any(error and "404" in error for _, error in by_state.values())


def test_a_sender_killed_after_sending_does_not_tell_people_twice(story, peers):
    """What a kill -9 between the peer's answer and our note leaves: a row that says `sending`, and a message there."""
    point_channels(story, peers)
    deliver(story, peers)
    with story.sessions.begin() as session:
        session.execute(
            update(Notification).values(state=NotificationState.SENDING, sending_since=story.now, sent_at=None)
        )
    assert deliver(story, peers) == 0  # somebody may still be sending
    story.now += timedelta(minutes=3)
    deliver(story, peers)
    deliver(story, peers)
    assert states(story) == {"sent"}
    assert len(peers.store.all()) == 4


def test_back_off_doubles_and_never_undercuts_what_the_peer_asked():
    rng = Random(3)
    waits = [alert.back_off(attempt, rng=rng).total_seconds() for attempt in (1, 2, 3, 4)]
    assert all(15 * 2**k <= wait <= 15 * 2**k * 1.5 for k, wait in enumerate(waits))
    assert alert.back_off(1, rng=rng, at_least_s=500).total_seconds() >= 500
