"""The outbox against a real mail server and a real HTTP peer: once each, in order, whatever dies."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random

import pytest
from aiosmtpd.controller import Controller
from sqlalchemy import select, update
from werkzeug.serving import make_server

from service.adapters.email import EmailSender
from service.adapters.slack import SlackBotSender, SlackWebhookSender
from service.adapters.webhook import WebhookSender
from service.domain.states import ChannelKind, NotificationState
from service.local.catcher import MailHandler, MessageStore, create_app
from service.store.tables import Channel, Notification
from service.usecases import alert
from tests.story import Planted, Story

SENDER = "kernelwatch <kw@example.org>"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peers:
    """A mail server and an HTTP receiver that keep what they get."""

    def __init__(self, folder):
        self.store = MessageStore(folder)
        self.smtp = Controller(MailHandler(self.store), hostname="127.0.0.1", port=free_port())
        self.smtp.start()
        self.http = make_server("127.0.0.1", 0, create_app(self.store), threaded=True)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    @property
    def smtp_url(self) -> str:
        return f"smtp://127.0.0.1:{self.smtp.port}"

    def close(self):
        self.smtp.stop()
        self.http.shutdown()
        self.http.server_close()

    def titles(self, kind: str) -> list[str]:
        return [message.title for message in self.store.all() if message.kind == kind]


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


def point_channels(story, peers, **configs):
    defaults = {
        "email": {"to": ["team@example.org"], "smtp_url": peers.smtp_url},
        "slack_webhook": {"url": f"{peers.url}/slack/perf"},
    }
    with story.sessions.begin() as session:
        for kind, config in {**defaults, **configs}.items():
            session.execute(update(Channel).where(Channel.kind == kind).values(config=config))


def deliver(story, peers, *, senders=None) -> int:
    return alert.deliver_due(
        story.sessions,
        senders=senders
        or {
            ChannelKind.EMAIL: EmailSender(smtp_url=peers.smtp_url, sender=SENDER),
            ChannelKind.SLACK_WEBHOOK: SlackWebhookSender(),
            ChannelKind.SLACK_BOT: SlackBotSender(),
            ChannelKind.WEBHOOK: WebhookSender(),
        },
        public_url="http://127.0.0.1:8080",
        clock=lambda: story.now,
        rng=Random(1),
    )


def states(story) -> set[str]:
    with story.sessions() as session:
        return set(session.scalars(select(Notification.state)))


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
