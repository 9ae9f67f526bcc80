"""Quiet hours, digests, and news that is dropped because it was taken back before anybody heard it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from service.domain.states import NotificationEvent, NotificationState, RegressionState
from service.store.tables import Channel, Notification, Regression
from service.usecases import alert
from service.usecases.triage import Decision, decide
from tests.peers import Peers, deliver, point_channels, states
from tests.story import Planted, Story

MORNING = datetime(2030, 1, 2, 7, 0, tzinfo=UTC)


@pytest.fixture
def peers(tmp_path):
    opened = Peers(tmp_path / "caught")
    yield opened
    opened.close()


def night_of(sessions, peers, *, seed=41):
    """Two regressions found in the quiet hours of both channels."""
    plans = [Planted()] * 24
    plans[9], plans[17] = Planted({"moe": 1.15}), Planted({"gemm": 1.2})
    story = Story(sessions, plans, seed=seed)
    story.now = datetime(2030, 1, 1, 23, 0, tzinfo=UTC)
    quiet = {"quiet": "22:00-07:00"}
    point_channels(
        story,
        peers,
        email={"to": ["team@example.org"], "smtp_url": peers.smtp_url, **quiet},
        slack_webhook={"url": f"{peers.url}/slack/perf", **quiet},
    )
    for tip in (2, 4, 6, 12, 14, 20):
        story.push(tip)
    assert story.found() == {9: "attributed", 17: "attributed"}
    return story


def test_what_comes_in_quiet_hours_is_told_as_one_digest_at_their_end(sessions, peers):
    story = night_of(sessions, peers)
    assert deliver(story, peers) == 0
    assert peers.store.all() == []
    story.now = MORNING
    assert deliver(story, peers) == 2
    assert deliver(story, peers) == 0
    assert states(story) == {"sent"}
    (mail,) = (message for message in peers.store.all() if message.kind == "email")
    assert "2 changes while this channel was quiet" in mail.title
    assert mail.text.count("Culprit: ") >= 2
    (slack,) = (message for message in peers.store.all() if message.kind == "slack")
    assert slack.text.count("Culprit: ") == 2


def test_eight_senders_at_the_end_of_the_night_send_one_digest_each_channel(sessions, peers):
    story = night_of(sessions, peers)
    story.now = MORNING
    with ThreadPoolExecutor(8) as pool:
        sent = sum(pool.map(lambda _: deliver(story, peers), range(8)))
    assert sent + deliver(story, peers) == 2
    assert len(peers.store.all()) == 2
    assert states(story) == {"sent"}


def test_a_digest_whose_sender_died_is_sent_again_as_the_same_message(sessions, peers):
    story = night_of(sessions, peers)
    story.now = MORNING
    deliver(story, peers)
    with story.sessions.begin() as session:
        session.execute(update(Notification).values(state=NotificationState.SENDING, sending_since=story.now))
    story.now += timedelta(minutes=3)
    assert deliver(story, peers) == 2
    assert len(peers.store.all()) == 2  # the peers knew it by its key
    assert states(story) == {"sent"}


def test_one_message_alone_needs_no_digest(sessions, peers):
    story = night_of(sessions, peers)
    with story.sessions.begin() as session:
        gone = session.scalars(select(Regression.id).order_by(Regression.id)).first()
        alert.silence(session, regression_ids=[gone])
    story.now = MORNING
    deliver(story, peers)
    titles = [message.title for message in peers.store.all()]
    assert len(titles) == 2
    assert all("Culprit: " in title and "changes while" not in title for title in titles)


def test_a_channel_with_a_daily_hour_hears_once_a_day(sessions, peers):
    story = night_of(sessions, peers)
    point_channels(story, peers, email={"to": ["team@example.org"], "smtp_url": peers.smtp_url, "daily": "12:00"})
    with story.sessions.begin() as session:
        regression = session.scalars(select(Regression).order_by(Regression.id)).first()
        regression.state = RegressionState.FIXED
        alert.enqueue(session, regression=regression, event=NotificationEvent.FIXED, now=MORNING)
        mail = session.scalars(select(Channel.id).where(Channel.kind == "email")).one()
        row = session.scalars(
            select(Notification).where(Notification.event == "fixed", Notification.channel_id == mail)
        )
        assert row.one().digest_at == MORNING.replace(hour=12)


def decided(story, state, **more):
    with story.sessions.begin() as session:
        ids = session.scalars(select(Regression.id)).all()
        decision = Decision(state=state, actor="ada", note="known", assignee="bo", **more)
        assert len(decide(session, ids=ids, decision=decision, now=story.now).moved) == len(ids)


@pytest.mark.parametrize("state", [RegressionState.EXPECTED, RegressionState.NOT_REAL])
def test_nothing_is_sent_of_what_people_have_accepted_or_refused(sessions, peers, state):
    story = night_of(sessions, peers)
    decided(story, state, expires_at=story.now + timedelta(days=7))
    with story.sessions.begin() as session:
        for regression in session.scalars(select(Regression)):
            alert.enqueue(session, regression=regression, event=NotificationEvent.ATTRIBUTED, now=story.now)
    story.now = MORNING
    assert deliver(story, peers) == 0
    assert states(story) == {"cancelled"}
    assert peers.store.all() == []


def withdraw(story):
    with story.sessions.begin() as session:
        for regression in session.scalars(select(Regression)):
            regression.state = RegressionState.NOT_REAL
            alert.enqueue(session, regression=regression, event=NotificationEvent.WITHDRAWN, now=story.now)


def test_a_regression_taken_back_before_anybody_heard_of_it_is_never_mentioned(sessions, peers):
    story = night_of(sessions, peers)
    withdraw(story)
    story.now = MORNING
    assert deliver(story, peers) == 0
    assert states(story) == {"cancelled"}


def test_a_regression_taken_back_after_it_was_told_is_withdrawn_where_it_was_told(sessions, peers):
    story = night_of(sessions, peers)
    with story.sessions.begin() as session:
        mail = session.scalars(select(Channel).where(Channel.kind == "email")).one()
        session.execute(
            update(Notification).where(Notification.channel_id == mail.id).values(state=NotificationState.FAILED)
        )
    story.now = MORNING
    deliver(story, peers)
    withdraw(story)
    deliver(story, peers)
    titles = [message.title for message in peers.store.all()]
    assert sum(title.startswith("Withdrawn: ") for title in titles) == 2  # one for each regression, on Slack alone
    assert peers.titles("email") == []


def test_the_owner_is_mentioned_by_the_name_that_the_channel_knows(sessions, peers):
    plans = [Planted()] * 14
    plans[9] = Planted({"moe": 1.15})
    story = Story(sessions, plans, seed=21)
    for tip in (2, 4, 6, 12):
        story.push(tip)
    point_channels(
        story, peers, slack_webhook={"url": f"{peers.url}/slack/perf", "owners": {"ada@example.org": "U0123456"}}
    )
    deliver(story, peers)
    first, second = (message for message in peers.store.all() if message.kind == "slack")
    assert "<@U0123456>" not in first.text  # one call is enough
    assert "<@U0123456>" in second.text


def test_a_failed_message_is_sent_once_more_when_somebody_asks(sessions, peers):
    story = night_of(sessions, peers)
    point_channels(story, peers, slack_webhook={"url": f"{peers.url}/no-such-door", "quiet": "22:00-07:00"})
    story.now = MORNING
    deliver(story, peers)
    point_channels(story, peers)
    with story.sessions.begin() as session:
        failed = session.scalars(select(Notification.id).where(Notification.state == "failed")).all()
        assert len(failed) == 4  # the digest of four messages
        assert alert.retry(session, notification_id=failed[-1], actor="ada", now=story.now)
        assert not alert.retry(session, notification_id=failed[-1], actor="ada", now=story.now)
        assert not alert.retry(session, notification_id=10**6, actor="ada", now=story.now)
    assert deliver(story, peers) == 1
    assert len(peers.titles("slack")) == 1
