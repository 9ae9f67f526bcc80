"""A story in which processes die: at commits, between a claim and its work, before and after a message is handed over.

A death is an exception that nothing catches, raised at a random one of these moments; what was committed stays, what
was not is gone. Then time passes and the service does what its beat does: leases run out, reports that nobody analysed
are analysed, stuck messages are sent again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from sqlalchemy import event

from service.adapters.email import EmailSender
from service.adapters.slack import SlackWebhookSender
from service.domain.message import Sender
from service.domain.states import ChannelKind
from service.store import runs
from service.store.tables import Runner
from service.usecases import alert, dispatch, ingest
from tests.peers import SENDER, Peers, point_channels
from tests.story import Planted, Story

PUSHES = (2, 4, 6, 12, 14)
CULPRIT = 9


class KilledError(BaseException):
    """The process is gone: not an Exception, so that no handler can survive it."""


@dataclass
class Deaths:
    """Decides at each moment whether the process dies there."""

    rng: Random
    chance: float
    counts: Counter = field(default_factory=Counter)

    def at(self, moment: str, *_arguments: object) -> None:
        if self.rng.random() < self.chance:
            self.counts[moment] += 1
            raise KilledError(moment)


@dataclass
class DyingSender:
    """A sender whose process may die before it hands a message over, or before it hears the answer."""

    real: Sender
    deaths: Deaths
    handed_over: Counter = field(default_factory=Counter)

    def send(self, message, *, config, thread):
        self.deaths.at("before a message is sent")
        answer = self.real.send(message, config=config, thread=thread)
        self.handed_over[message.key] += 1
        self.deaths.at("after a message was sent")
        return answer

    def send_digest(self, digest, *, config):
        raise AssertionError("no channel of this story holds anything back")


@dataclass
class Ending:
    """What a story came to."""

    found: dict[int, str]
    told: list[tuple[int, str]]
    caught: list[tuple[str, str]]  # kind and title of what the peers have
    deaths: Counter
    sent_again: int  # under a key that the peer knew already


class FaultyStory:
    """One planted regression, from pushes to the last message, with deaths on the way."""

    def __init__(self, sessions, peers: Peers, *, seed: int, chance: float) -> None:
        plans = [Planted()] * 16
        plans[CULPRIT] = Planted({"moe": 1.2})
        self.peers = peers
        self.deaths = Deaths(Random(seed), 0.0)
        self.story = Story(sessions, plans, seed=7)
        point_channels(self.story, peers)
        self.senders = {
            ChannelKind.EMAIL: DyingSender(EmailSender(smtp_url=peers.smtp_url, sender=SENDER), self.deaths),
            ChannelKind.SLACK_WEBHOOK: DyingSender(SlackWebhookSender(), self.deaths),
        }
        event.listen(sessions, "before_commit", lambda _session: self.deaths.at("before a commit"))
        self.deaths.chance = chance

    def play(self) -> Ending:
        """Push, measure, analyse and deliver until nothing is left to do, dying and starting again on the way."""
        for tip in PUSHES:
            self._survive(lambda tip=tip: self._push_once(tip))
            for _ in range(400):
                if not self._survive(self._step):
                    break
            else:
                raise AssertionError("the story does not end")
        again = sum(count - 1 for sender in self.senders.values() for count in sender.handed_over.values())
        return Ending(
            found=self.story.found(),
            told=sorted(self.story.told()),
            caught=sorted((str(message.kind), message.title) for message in self.peers.store.all()),
            deaths=self.deaths.counts,
            sent_again=again,
        )

    def _survive(self, action):
        """Do it; if the process dies, let time pass, recover, and do it again."""
        for _ in range(200):
            try:
                return action()
            except KilledError:
                self.story.now += timedelta(minutes=3)
        raise AssertionError("no process lives long enough")

    def _push_once(self, tip: int) -> None:
        """A forge repeats a delivery that nobody answered; the dedupe key makes the repeat harmless."""
        self.story.order(tip)

    def _step(self) -> bool:
        """One round of the service; False when there was nothing left to do."""
        story = self.story
        with story.sessions.begin() as session:
            dispatch.expire_leases(session, now=story.now, max_attempts=50)
        with story.sessions() as session:
            waiting = runs.unanalysed(session, finished_before=story.now + timedelta(days=1))
        for run_id in waiting:
            story.analyse(run_id)
        measured = self._measure()
        sent = alert.deliver_due(
            story.sessions,
            senders=self.senders,
            public_url="http://127.0.0.1:8080",
            clock=lambda: story.now,
            rng=Random(1),
        )
        return bool(waiting) or measured or bool(sent) or self._is_unfinished()

    def _measure(self) -> bool:
        """Claim one run, die or measure it, and hand in the report until the service has it, as the spool does."""
        story = self.story
        story.now += timedelta(seconds=10)
        with story.sessions.begin() as session:
            runner = session.get_one(Runner, story.runner_ids["cpu"])
            order = dispatch.claim(session, runner=runner, run_id=None, now=story.now, lease_s=90)
        if order is None:
            return False
        self.deaths.at("between a claim and its measurement")
        report = story.device.report(order, now=story.now.timestamp())
        self._survive(lambda: self._hand_in(report))
        return True

    def _hand_in(self, report) -> None:
        with self.story.sessions.begin() as session:
            runner = session.get_one(Runner, self.story.runner_ids["cpu"])
            ingest.store_report(session, report, runner=runner, now=self.story.now, max_attempts=50)

    def _is_unfinished(self) -> bool:
        """Whether a lease or a message still waits for its time."""
        from sqlalchemy import func, select

        from service.store.tables import Notification, Run

        with self.story.sessions() as session:
            open_runs = session.scalar(
                select(func.count()).select_from(Run).where(Run.state.in_(["queued", "leased", "measuring"]))
            )
            open_messages = session.scalar(
                select(func.count()).select_from(Notification).where(Notification.state.in_(["pending", "sending"]))
            )
        if open_runs or open_messages:
            self.story.now += timedelta(minutes=3)
        return bool(open_runs or open_messages)
