"""The process that is killed: it measures, analyses, bisects and delivers one story, and tells a line what it does.

What it says is where a kill may strike: one mark per SQL statement and commit, with the part of the work it belongs
to. It starts with nothing but the database; each life begins an hour later than the one before, so that leases and
claims of the dead have run out.
"""

from __future__ import annotations

import faulthandler
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from random import Random

from sqlalchemy import event, func, select

from service.domain.states import ChannelKind, NotificationState, RunState
from service.store import runs
from service.store.engine import make_engine, make_sessions
from service.store.tables import Notification, Run, Runner
from service.usecases import alert, dispatch, ingest
from tests.peers import make_senders
from tests.story import Planted, Story

PUSHES = (2, 4, 6, 12, 14)
COMMITS = 16
CULPRIT = 9
ATTEMPTS = 200  # nobody gives up because of deaths
DONE = "done"


@dataclass(frozen=True, slots=True)
class Will:
    """What one life gets of the last: where the story is kept, and which life this is."""

    database_url: str
    smtp_url: str
    life: int


def tell_story(sessions, *, device_seed: int = 7) -> Story:
    """The story of every life: one commit among many that makes one family slower."""
    plans = [Planted()] * COMMITS
    plans[CULPRIT] = Planted({"moe": 1.2})
    return Story(sessions, plans, seed=7, options={"device_seed": device_seed})


def live(will: Will, line: Connection) -> None:
    """Work until nothing is left to do, and say so; a process of its own."""
    faulthandler.enable()
    Life(will, line).play()
    line.send(DONE)


class Life:
    """One process from its start to its end, whoever ends it."""

    def __init__(self, will: Will, line: Connection) -> None:
        engine = make_engine(will.database_url)
        self.line = line
        self.part = "starting"
        self.senders = make_senders(will.smtp_url)
        event.listen(engine, "before_cursor_execute", self._mark_statement)
        event.listen(engine, "commit", lambda _connection: self._mark("a commit"))
        self.story = tell_story(make_sessions(engine), device_seed=will.life)
        self.story.now += timedelta(hours=will.life)

    def _mark_statement(self, _connection, _cursor, statement, *_rest) -> None:
        self._mark(statement.split(None, 1)[0].lower())

    def _mark(self, what: str) -> None:
        self.line.send(f"{self.part}, at {what}")

    def play(self) -> None:
        """Push what the forge pushes (it repeats what nobody answered), and work it off."""
        for tip in PUSHES:
            self.part = "pushing"
            self.story.order(tip)
            for _ in range(400):
                if not self._step():
                    break
            else:
                raise AssertionError("the story does not end")

    def _step(self) -> bool:
        """One round of the service; False when there was nothing left to do."""
        story = self.story
        self.part = "expiring leases"
        with story.sessions.begin() as session:
            dispatch.expire_leases(session, now=story.now, max_attempts=ATTEMPTS)
        self.part = "detecting and bisecting"
        with story.sessions() as session:
            waiting = runs.unanalysed(session, finished_before=story.now + timedelta(days=1))
        for run_id in waiting:
            story.analyse(run_id)
        measured = self._measure()
        self.part = "delivering"
        sent = alert.deliver_due(
            story.sessions,
            senders=self.senders,
            public_url="http://127.0.0.1:8080",
            clock=lambda: story.now,
            rng=Random(1),
        )
        return bool(waiting) or measured or bool(sent) or self._is_unfinished()

    def _measure(self) -> bool:
        story = self.story
        story.now += timedelta(seconds=10)
        self.part = "claiming a run"
        with story.sessions.begin() as session:
            runner = session.get_one(Runner, story.runner_ids["cpu"])
            order = dispatch.claim(session, runner=runner, run_id=None, now=story.now, lease_s=90)
        if order is None:
            return False
        report = story.device.report(order, now=story.now.timestamp())
        self.part = "storing a report"
        with story.sessions.begin() as session:
            runner = session.get_one(Runner, story.runner_ids["cpu"])
            ingest.store_report(session, report, runner=runner, now=story.now, max_attempts=ATTEMPTS)
        return True

    def _is_unfinished(self) -> bool:
        """Whether a lease or a message still waits for its time, which then comes."""
        busy = (RunState.QUEUED, RunState.LEASED, RunState.MEASURING)
        unsent = (NotificationState.PENDING, NotificationState.SENDING)
        self.part = "looking for what is left"
        with self.story.sessions() as session:
            open_runs = session.scalar(select(func.count()).select_from(Run).where(Run.state.in_(busy)))
            open_messages = session.scalar(
                select(func.count()).select_from(Notification).where(Notification.state.in_(unsent))
            )
        if open_runs or open_messages:
            self.story.now += timedelta(minutes=3)
        return bool(open_runs or open_messages)


CHANNELS = (ChannelKind.EMAIL, ChannelKind.SLACK_WEBHOOK, ChannelKind.SLACK_BOT, ChannelKind.WEBHOOK)
