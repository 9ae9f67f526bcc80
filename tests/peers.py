"""A real mail server and a real HTTP receiver for messages, and what points a story's channels at them."""

from __future__ import annotations

import socket
import threading
from random import Random

from aiosmtpd.controller import Controller
from sqlalchemy import select, update
from werkzeug.serving import make_server

from service.adapters.email import EmailSender
from service.adapters.slack import SlackBotSender, SlackWebhookSender
from service.adapters.webhook import WebhookSender
from service.domain.states import ChannelKind
from service.local.catcher import MailHandler, MessageStore, create_app
from service.store.tables import Channel, Notification
from service.usecases import alert

SENDER = "kernelwatch <kw@example.org>"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Peers:
    """A mail server and an HTTP receiver that keep what they get, in a store or a folder."""

    def __init__(self, store):
        self.store = store if isinstance(store, MessageStore) else MessageStore(store)
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


def point_channels(story, peers, **configs):
    defaults = {
        "email": {"to": ["team@example.org"], "smtp_url": peers.smtp_url},
        "slack_webhook": {"url": f"{peers.url}/slack/perf"},
    }
    with story.sessions.begin() as session:
        for kind, config in {**defaults, **configs}.items():
            session.execute(update(Channel).where(Channel.kind == kind).values(config=config))


def make_senders(smtp_url: str) -> dict:
    return {
        ChannelKind.EMAIL: EmailSender(smtp_url=smtp_url, sender=SENDER),
        ChannelKind.SLACK_WEBHOOK: SlackWebhookSender(),
        ChannelKind.SLACK_BOT: SlackBotSender(),
        ChannelKind.WEBHOOK: WebhookSender(),
    }


def deliver(story, peers, *, senders=None) -> int:
    return alert.deliver_due(
        story.sessions,
        senders=senders or make_senders(peers.smtp_url),
        public_url="http://127.0.0.1:8080",
        clock=lambda: story.now,
        rng=Random(1),
    )


def states(story) -> set[str]:
    with story.sessions() as session:
        return set(session.scalars(select(Notification.state)))
