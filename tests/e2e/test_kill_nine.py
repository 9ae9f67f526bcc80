"""kill -9 of every process while a real run is measured: the run completes, nothing is stored or told twice."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from service.domain.states import ChannelKind, RunState
from service.local.demo.forge import Forge
from service.local.demo.history import build_history
from service.local.demo.watch import Watch
from service.local.postgres import EmbeddedPostgres
from service.store.engine import make_engine
from service.store.tables import Channel, GitCommit, Measurement, Notification, Regression, Repository, Run
from tests.running import Up, wait_for

NAME = "demo/kernels"
QUICK = {"processes": 4, "blocks": 3, "block_s": 0.005}
# By push: what is killed while its run is measured. The fourth push brings a slowdown, and with it alerts.
VICTIMS = (
    ("service.wsgi", "celery_app worker", "celery_app beat"),
    ("postgres -D", "valkey-server"),
    ("runner serve",),
    ("runners.measure.child",),
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def home():
    folder = Path(tempfile.mkdtemp(prefix="kernelwatch-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


def database(home: Path) -> Engine:
    port = json.loads((home / "data" / "addresses.json").read_text())["database"]
    return make_engine(EmbeddedPostgres(home / "data" / "postgres", port=port).url())


def patiently(ask):
    """Ask the database until it answers: it may be the one that was killed."""
    deadline = time.monotonic() + 120
    while True:
        try:
            return ask()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def measuring(engine: Engine, sha: str) -> bool:
    with Session(engine) as session:
        run = session.scalar(select(Run).join(GitCommit, GitCommit.id == Run.commit_id).where(GitCommit.sha == sha))
        return run is not None and run.state == RunState.MEASURING and run.stage not in {None, "checkout", "build"}


def test_every_process_may_be_killed_and_nothing_is_lost_or_doubled(home):
    pushes = build_history(home / "history")
    up = Up(home, KERNELWATCH_LEASE_S="12")
    try:
        web = up.url()
        caught = json.loads((home / "data" / "addresses.json").read_text())["messages"]
        engine = database(home)
        forge = Forge(work=home / "history", bare=home / "forge.git", name=NAME, secret="s" * 32, web_url=web)
        forge.create()
        with Session(engine) as session, session.begin():
            repository = Repository(
                name=NAME, clone_url=str(forge.bare), webhook_secret=forge.secret, settings={"protocol": QUICK}
            )
            session.add(repository)
            session.flush()
            session.add(
                Channel(
                    repository_id=repository.id,
                    name="mail",
                    kind=ChannelKind.EMAIL.value,
                    config={"to": ["ada@example.com"]},
                )
            )
        watch = Watch(engine, repository=NAME)
        for push, victims in zip(pushes, VICTIMS, strict=False):
            forge.push(push)
            wait_for(lambda push=push: measuring(engine, push.tip.sha), up.words)
            for words in victims:
                victim = up.descendant(words)
                assert victim is not None, words
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()
            wait_for(lambda: patiently(watch.quiet), lambda: "\n".join((up.words(), *watch.news())))

        with Session(engine) as session:
            runs = session.execute(
                select(Run.id, Run.state, Run.attempt, Run.failure_reason).where(Run.reason == "push").order_by(Run.id)
            ).all()
            assert [row.state for row in runs] == [RunState.REPORTED] * len(VICTIMS), runs
            assert max(row.attempt for row in runs) <= 3
            doubled = session.execute(
                select(Measurement.run_id, Measurement.series_id, Measurement.commit_id)
                .group_by(Measurement.run_id, Measurement.series_id, Measurement.commit_id)
                .having(func.count() > 1)
            ).all()
            assert doubled == []
            per_run = session.execute(
                select(func.count())
                .where(Measurement.run_id.in_([row.id for row in runs]))
                .group_by(Measurement.run_id)
            ).scalars()
            assert len(set(per_run)) == 1
            assert session.scalar(select(func.count()).select_from(Regression)) == 1
            sent = session.scalars(select(Notification.event).where(Notification.state == "sent")).all()
        mails = httpx.get(f"http://127.0.0.1:{caught}/messages.json", trust_env=False).json()
        keys = [mail["headers"]["X-Kernelwatch-Key"] for mail in mails]
        assert sorted(sent) == ["attributed", "opened"]
        assert len(keys) == len(set(keys)) == len(sent)
        engine.dispose()
        assert up.end() == 0
    finally:
        if up.process.poll() is None:
            up.end()
