"""Run the demo: a clean service, a planted history, pushes, and the table of what was found.

Each demo starts from nothing: its own data folder inside the real one is emptied first (under a lock, so that two
demos do not meet). With DATABASE_URL the database is somebody else's, so a new repository name is taken instead.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx
from sqlalchemy.orm import Session

from service.domain.states import ChannelKind, Direction, MeasurePolicy
from service.local.demo.forge import Forge
from service.local.demo.history import MadePush, build_history
from service.local.demo.table import NextSteps, judge, render
from service.local.demo.watch import Watch
from service.local.errors import LocalError, StoppedError
from service.local.placement import erase, make_private
from service.local.postgres import EmbeddedPostgres
from service.local.processes import exclusive
from service.local.stack import Addresses, Stack, StackOptions
from service.settings import Settings
from service.store.engine import make_engine
from service.store.tables import Channel, Repository

POOL = "cpu"
PATIENCE_S = 240.0  # for one push; it usually takes a tenth
POLL_S = 0.5
CALM_POLLS = 2
# Enough processes for an interval, few enough that forty commits fit into minutes.
PROTOCOL = {"processes": 4, "blocks": 3, "block_s": 0.012, "budget_s": 20.0}
MAIL, SLACK = "mail", "slack"


class DemoEnd(StrEnum):
    """What happens after the table."""

    EXIT = "exit"
    STAY = "stay"


@dataclass(slots=True)
class Outcome:
    """What the driving thread leaves behind."""

    passed: bool = False
    error: LocalError | None = None


def run_demo(settings: Settings, *, end: DemoEnd) -> bool:
    """Show everything; True if exactly the planted commits were found."""
    from service.local.supervisor import terminal_says

    home = settings.data_dir / "demo"
    make_private(settings.data_dir)
    with exclusive(settings.data_dir / "demo.lock", what="the demo"):
        if home.exists():
            EmbeddedPostgres(home / "postgres").end_orphan()
            for server in ("postgres", "broker"):
                erase(home / server)
            erase(home)
        mine = settings.model_copy(update={"data_dir": home, "cache_dir": home / "cache"})
        with Stack(mine, StackOptions(pool=POOL), say=terminal_says) as stack:
            outcome = Outcome()
            driver = Driver(mine, stack)
            thread = threading.Thread(target=driver.run, args=(outcome,), name="demo")
            thread.start()
            stack.serve(finished=lambda: not thread.is_alive())
            driver.stopping.set()
            thread.join()
            if outcome.error is not None:
                raise outcome.error
            if end is DemoEnd.STAY:
                terminal_says(f"\nthe site stays at {stack.addresses.web_url} until Ctrl-C")
                stack.serve()
    return outcome.passed


class Driver:
    """Pushes, waits, and judges, in a thread beside the supervisor."""

    def __init__(self, settings: Settings, stack: Stack) -> None:
        self.stopping = threading.Event()
        self._settings = settings
        self._addresses: Addresses = stack.addresses
        self._sign_in_url = stack.sign_in_url
        self._say: Callable[[str], None] = stack.tell
        self._began = time.monotonic()

    def run(self, outcome: Outcome) -> None:
        """The thread's body: an error is handed to the main thread."""
        try:
            outcome.passed = self._drive()
        except LocalError as error:
            outcome.error = error
        except httpx.HTTPError as error:
            outcome.error = LocalError(f"the service could not be reached: {error}")

    def first_push(self) -> None:
        """Only the first push, until it has been dealt with."""
        with self._opened() as (forge, watch, pushes):
            forge.push(pushes[0])
            self._await_quiet(watch)

    def _drive(self) -> bool:
        with self._opened() as (forge, watch, pushes):
            for number, push in enumerate(pushes, start=1):
                self._say(f"push {number}/{len(pushes)}  {len(push.commits)} commits, tip {push.tip.sha[:10]}")
                forge.push(push)
                self._await_quiet(watch)
            steps = NextSteps(
                sign_in_url=self._sign_in_url,
                clone_url=str(forge.bare),
                program=str(Path(sys.executable).with_name("kernelwatch")),
            )
            return self._conclude(watch, pushes, steps=steps)

    @contextmanager
    def _opened(self) -> Iterator[tuple[Forge, Watch, tuple[MadePush, ...]]]:
        """The repository, registered, and the people to tell."""
        pushes = build_history(self._settings.data_dir / "history")
        count = sum(len(push.commits) for push in pushes)
        self._say(f"history    {count} commits in {len(pushes)} pushes, from real kernels")
        forge = self._make_forge()
        engine = make_engine(self._addresses.database_url)
        try:
            self._register(forge, Session(engine))
            yield forge, Watch(engine, repository=forge.name), pushes
        finally:
            engine.dispose()

    def _make_forge(self) -> Forge:
        home = self._settings.data_dir
        suffix = time.strftime("-%Y%m%d-%H%M%S") if self._settings.database_url else ""
        forge = Forge(
            work=home / "history",
            bare=home / "forge.git",
            name=f"demo/kernels{suffix}",
            secret=secrets.token_urlsafe(24),
            web_url=self._addresses.web_url,
        )
        forge.create()
        return forge

    def _register(self, forge: Forge, session: Session) -> None:
        with session, session.begin():
            repository = Repository(
                name=forge.name,
                clone_url=str(forge.bare),
                webhook_secret=forge.secret,
                measure_policy=MeasurePolicy.TIP.value,
                pools=[POOL],
                settings={"protocol": PROTOCOL},
            )
            session.add(repository)
            session.flush()
            directions = [direction.value for direction in Direction]
            for name, kind, config in (
                (MAIL, ChannelKind.EMAIL, {"to": ["kernels@example.com"]}),
                (SLACK, ChannelKind.SLACK_WEBHOOK, {"url": f"{self._addresses.catcher_url}/slack/kernels"}),
            ):
                session.add(
                    Channel(
                        repository_id=repository.id, name=name, kind=kind.value, config=config, directions=directions
                    )
                )
        self._say(f"repository {forge.name} is registered; the tip of each push is measured")

    def _await_quiet(self, watch: Watch) -> None:
        """Tell what happens until nothing does."""
        deadline = time.monotonic() + PATIENCE_S
        calm = 0
        while calm < CALM_POLLS:
            if self.stopping.wait(POLL_S):
                raise StoppedError("the demo was stopped")
            if time.monotonic() > deadline:
                raise LocalError(f"nothing came to rest within {PATIENCE_S:.0f} s: see the logs")
            calm = calm + 1 if watch.quiet() else 0
            for line in watch.news():
                self._say(line)

    def _conclude(self, watch: Watch, pushes: tuple[MadePush, ...], *, steps: NextSteps) -> bool:
        found = watch.found()
        verdict = judge(pushes, found, breakages=watch.breakages(), channels=(MAIL, SLACK), caught=self._caught())
        self._say(
            render(
                verdict,
                watch.totals(),
                web_url=self._addresses.web_url,
                catcher_url=self._addresses.catcher_url,
                wall_s=time.monotonic() - self._began,
                steps=steps,
            )
        )
        return verdict.passed

    def _caught(self) -> Counter[tuple[str, int]]:
        """How many messages arrived per channel and regression, told apart by the link that each carries."""
        messages = httpx.get(f"{self._addresses.catcher_url}/messages.json", timeout=10.0, trust_env=False).json()
        counts: Counter[tuple[str, int]] = Counter()
        for message in messages:
            channel = MAIL if message["kind"] == "email" else SLACK
            _, found, after = f"{message['text']} ".partition(f"{self._addresses.web_url}/regressions/")
            digits = "".join(c for c in after.split("|")[0].split()[0] if c.isdigit()) if found else ""
            if digits:
                counts[channel, int(digits)] += 1
        return counts
