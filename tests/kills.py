"""kill -9 at random moments of detection, bisection and delivery, until the story is told.

The victim (`tests.mortal`) is a process of its own and dies of SIGKILL, so nothing of it can clean up. It is struck
at a random one of its marks (any SQL statement or commit; the signal lands some microseconds to milliseconds later,
wherever that is), and by the peers: when a message arrives that they do not take, and when they have taken one and the
answer has not been given. That last moment is the one that no sender can tell from a lost message: the next life must
hand the same message over again, under the same key, and the peer must know the key.

What the peers got is counted twice: every arrival, and what they kept as a message of its own.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from sqlalchemy import select

from service.local.catcher import MessageStore
from service.store.engine import make_engine, make_sessions
from service.store.tables import Bisection, Channel
from tests.mortal import CHANNELS, DONE, Will, live, tell_story
from tests.peers import Peers

LONGEST_LIFE = 200  # marks; an undisturbed story makes some 730
ACCEPTED = "a message accepted, its answer not given"
REFUSED = "a message arriving, not accepted"
LIVES = 400


@dataclass(frozen=True, slots=True)
class Chances:
    """How many deaths a story has at marks, and how likely the peers' moments are deadly."""

    at_marks: int
    refused: float = 0.2  # a sender dies as its message arrives, and the peer does not take it
    accepted: float = 0.4  # it dies once the peer has taken a new message, before the answer


UNDISTURBED = Chances(at_marks=0, refused=0.0, accepted=0.0)


@dataclass
class Undertaker:
    """Decides who dies when, and writes it down."""

    rng: Random
    chances: Chances
    victim: multiprocessing.process.BaseProcess | None = None
    at_marks: int = 0
    deaths: Counter = field(default_factory=Counter)

    def marks_to_live(self) -> int:
        """How many marks the next life may make; 0: as many as it likes."""
        return self.rng.randint(1, LONGEST_LIFE) if self.at_marks < self.chances.at_marks else 0

    def strikes(self, moment: str, *, chance: float) -> bool:
        """Kill the victim at a peer's moment, or let it be."""
        if self.rng.random() >= chance or self.victim is None or not self.victim.is_alive():
            return False
        self.victim.kill()
        self.deaths[moment] += 1
        return True


class CountingStore(MessageStore):
    """Keeps messages, counts every arrival, and may have the sender killed on either side of the acceptance."""

    def __init__(self, folder: Path, undertaker: Undertaker) -> None:
        super().__init__(folder)
        self.undertaker = undertaker
        self.arrivals: Counter = Counter()  # by kind, receiver and key

    def keep(self, *, kind, to, key=None, **more):
        """Take the message, unless the sender dies as it arrives."""
        if self.undertaker.strikes(REFUSED, chance=self.undertaker.chances.refused):
            raise ConnectionAbortedError("the sender has died")
        kept = super().keep(kind=kind, to=to, key=key, **more)
        self.arrivals[kind, to, key] += 1
        if self.arrivals[kind, to, key] == 1:
            self.undertaker.strikes(ACCEPTED, chance=self.undertaker.chances.accepted)
        return kept


@dataclass(frozen=True)
class Ending:
    """What a story came to."""

    found: dict[int, str]
    verdicts: tuple[str, ...]  # of its bisections
    told: tuple[tuple[str, str], ...]  # (channel, event) of the outbox
    kept: tuple[tuple[str, str], ...]  # (kind, event) of what the peers hold as messages of their own
    threads: int  # messages of the bot that are replies to its opening message
    deaths: Counter
    sent_again: int  # arrivals under a key that the peer knew already


def play(database_url: str, folder: Path, *, seed: int, chances: Chances) -> Ending:
    """Tell the story with at least so many deaths, and say what it came to."""
    undertaker = Undertaker(Random(seed), chances)
    store = CountingStore(folder, undertaker)
    peers = Peers(store)
    engine = make_engine(database_url)
    try:
        story = tell_story(make_sessions(engine))
        _add_channels(story, peers)
        for life in range(1, LIVES):
            if _live(undertaker, Will(database_url, peers.smtp_url, life)):
                return _ending(story, store, undertaker)
    finally:
        peers.close()
        engine.dispose()
    raise AssertionError("no process lives long enough")


def _live(undertaker: Undertaker, will: Will) -> bool:
    """One life; True if it came to its own end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.mortal"])  # numpy and all the rest: once, not in every life
    ours, theirs = context.Pipe(duplex=False)
    victim = undertaker.victim = context.Process(target=live, args=(will, theirs))
    before = undertaker.deaths.total()
    limit = undertaker.marks_to_live()
    victim.start()
    theirs.close()
    marks, last = 0, "starting"
    try:
        while last != DONE:
            last = ours.recv()
            marks += 1
            if marks == limit:
                victim.kill()  # what it said since is still read: the last word tells where it died
    except (EOFError, OSError):  # dead, perhaps in the middle of a word
        pass
    victim.join()
    ours.close()
    if last == DONE:
        return True
    if undertaker.deaths.total() == before:
        if not 0 < limit <= marks:
            raise AssertionError(f"a process died by itself while {last}: exit code {victim.exitcode}")
        undertaker.at_marks += 1
        undertaker.deaths[last.split(", ")[0]] += 1
    return False


def _add_channels(story, peers) -> None:
    configs = {
        "email": {"to": ["team@example.org"]},
        "slack_webhook": {"url": f"{peers.url}/slack/perf"},
        "slack_bot": {"token": "xoxb-test", "channel": "C1", "base_url": f"{peers.url}/api/"},
        "webhook": {"url": f"{peers.url}/hook/team", "secret": "s"},
    }
    with story.sessions.begin() as session:
        known = {channel.kind: channel for channel in session.scalars(select(Channel))}
        for kind in CHANNELS:
            channel = known.get(kind) or Channel(repository_id=story.repository_id, name=str(kind), kind=kind)
            channel.config = configs[kind]
            session.add(channel)


def _ending(story, store: CountingStore, undertaker: Undertaker) -> Ending:
    kept = store.all()
    names = {(message.kind, message.to): message.kind for message in kept}
    with story.sessions() as session:
        verdicts = tuple(str(verdict) for verdict in session.scalars(select(Bisection.verdict).order_by(Bisection.id)))
        channels = dict(session.execute(select(Channel.id, Channel.kind)).all())
    return Ending(
        found=story.found(),
        verdicts=verdicts,
        told=tuple(sorted((channels[channel], event) for channel, event in story.told())),
        kept=tuple(sorted((f"{names[m.kind, m.to]} {m.to}", _event(m)) for m in kept)),
        threads=sum(bool(message.payload.get("thread_ts")) for message in kept),
        deaths=undertaker.deaths,
        sent_again=sum(count - 1 for count in store.arrivals.values()),
    )


def _event(message) -> str:
    title = str(message.payload.get("title") or message.title)
    return "attributed" if "Culprit: " in title else "opened"
