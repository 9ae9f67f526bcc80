"""kill -9 of every process in the middle of a measurement: the run completes, no sample twice, nobody told twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from service.adapters.github import DELIVERY_HEADER, EVENT_HEADER, SIGNATURE_HEADER, sign
from service.local.postgres import EmbeddedPostgres
from service.store.engine import make_engine
from service.store.tables import ChangePoint, Channel, Measurement, Notification, Regression, Repository, Run, Series

ROOT = Path(__file__).parents[2]
PATIENCE_S = 240
SECRET = "the-secret-of-the-webhook"
PROTOCOL = {"processes": 4, "blocks": 3, "block_s": 0.03, "budget_s": 20.0}

PROBLEM = """
import numpy as np

from runners.api import Problem, Tolerance, Workload

SUM = Problem(
    name="sum",
    family="blas1",
    axes=("n",),
    inputs=lambda axes, rng: {"x": rng.standard_normal(int(axes["n"]), dtype=np.float32)},
    reference=lambda values, axes: values["x"] * np.float32(2.0),
    flops=lambda axes: float(axes["n"]),
    bytes=lambda axes, dtype: 8.0 * float(axes["n"]),
    tolerance=lambda dtype, axes: Tolerance(rtol=1e-6, atol=0.0, rel_l2=1e-6),
    workloads=(Workload(axes={"n": 65536}), Workload(axes={"n": 98304})),
)
"""
KERNEL = """
import numpy as np

from runners.api import Launch, implementation

from ._problem import SUM

REPEATS = {repeats}


@implementation("doubling", problem=SUM, device="cpu", dtype="f32")
def prepare(ctx, inputs, axes):
    x = np.array(inputs["x"])
    out = np.zeros_like(x)

    def run():
        for _ in range(REPEATS):
            np.multiply(x, np.float32(2.0), out=out)

    def load(fresh):
        x[...] = fresh["x"]

    return Launch(run=run, output=lambda: out, load=load)
"""
VICTIMS = {
    "the child": "runners.measure.child",
    "the runner": "runner serve",
    "the worker": "service.celery_app worker",
    "the beat": "service.celery_app beat",
    "the web process": "gunicorn",
    "Postgres": "bin/postgres",
    "the broker": "valkey-server",
}

pytestmark = pytest.mark.slow


class Site:
    """A running `kernelwatch up` with one repository, and the forge beside it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.said = home / "said"
        environment = {k: v for k, v in os.environ.items() if k not in {"DATABASE_URL", "REDIS_URL"}}
        with self.said.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "up", "--data-dir", home / "data", "--port", "0"],
                cwd=ROOT,
                env={**environment, "KERNELWATCH_CACHE_DIR": str(home / "cache"), "KERNELWATCH_LEASE_S": "12"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.await_true(lambda: "kernelwatch is up" in self.said.read_text(), "up")
        self.addresses = json.loads((home / "data/addresses.json").read_text())
        server = EmbeddedPostgres(home / "data/postgres", port=self.addresses["database"])
        self.engine = make_engine(server.url())
        self.source, self.bare = home / "source", home / "forge.git"
        self.source.mkdir()
        self.git(self.source, "init", "-q", "-b", "main")
        self.git(home, "init", "-q", "--bare", "-b", "main", str(self.bare))
        self._register()

    def _register(self) -> None:
        messages = f"http://127.0.0.1:{self.addresses['messages']}"
        with Session(self.engine) as session, session.begin():
            repository = Repository(
                name="acme/kernels",
                clone_url=str(self.bare),
                suite_path="suite",
                webhook_secret=SECRET,
                settings={"protocol": PROTOCOL},
            )
            session.add(repository)
            session.flush()
            for name, kind, config in (
                ("mail", "email", {"to": ["team@example.org"]}),
                ("slack", "slack_webhook", {"url": f"{messages}/slack/perf"}),
            ):
                session.add(Channel(repository_id=repository.id, name=name, kind=kind, config=config))

    def git(self, where: Path, *arguments: str) -> str:
        person = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        done = subprocess.run(["git", *person, "-C", where, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def push(self, *, repeats: int, note: str) -> str:
        """Commit, push, and announce it until the service takes it, as a forge does."""
        suite = self.source / "suite"
        suite.mkdir(exist_ok=True)
        (suite / "_problem.py").write_text(PROBLEM)
        (suite / "doubling.py").write_text(KERNEL.format(repeats=repeats))
        (suite / "note.txt").write_text(note)
        before = self.git(self.bare, "for-each-ref", "--format=%(objectname)", "refs/heads/main") or "0" * 40
        self.git(self.source, "add", "-A")
        self.git(self.source, "commit", "-q", "-m", note)
        sha = self.git(self.source, "rev-parse", "HEAD")
        self.git(self.source, "push", "-q", str(self.bare), "main")
        payload = {
            "ref": "refs/heads/main",
            "before": before,
            "after": sha,
            "repository": {"full_name": "acme/kernels"},
            "commits": [{"id": sha}],
        }
        body = json.dumps(payload).encode()
        headers = {
            EVENT_HEADER: "push",
            DELIVERY_HEADER: str(uuid.uuid4()),
            SIGNATURE_HEADER: sign(SECRET, body),
            "Content-Type": "application/json",
        }
        url = f"http://127.0.0.1:{self.addresses['web']}/webhooks/github"

        def delivered() -> bool:
            try:
                return httpx.post(url, content=body, headers=headers, timeout=30, trust_env=False).status_code < 300
            except httpx.HTTPError:
                return False

        self.await_true(delivered, f"the webhook of {note}")
        return sha

    def measuring(self) -> bool:
        return self._count(select(func.count()).where(Run.state == "measuring")) > 0

    def quiet(self) -> bool:
        busy = select(func.count()).where(
            Run.state.in_(("queued", "leased", "measuring"))
            | ((Run.state != "skipped") & Run.analysed_at.is_(None) & Run.finished_at.is_not(None))
        )
        unsent = select(func.count()).select_from(Notification).where(Notification.state.in_(("pending", "sending")))
        return self._count(busy) == 0 and self._count(unsent) == 0

    def _count(self, statement) -> int:
        try:
            with Session(self.engine) as session:
                return int(session.scalar(statement) or 0)
        except DBAPIError:  # Postgres is one of the victims
            self.engine.dispose()
            return 1

    def kill(self, words: str) -> None:
        """kill -9 of the process whose command line holds these words."""

        def victims() -> list[psutil.Process]:
            found = []
            for process in psutil.Process(self.process.pid).children(recursive=True):
                try:
                    line = " ".join(process.cmdline())
                except psutil.Error:
                    continue
                if words in line and "guard.py" not in line:
                    found.append(process)
            return found

        self.await_true(lambda: bool(victims()), words)
        victims()[0].send_signal(signal.SIGKILL)

    def story(self) -> str:
        """What the service made of everything, for a failure's message."""
        with Session(self.engine) as session:
            runs = session.execute(
                select(Run.id, Run.reason, Run.state, Measurement.value_s, Measurement.half_width_s, Measurement.flags)
                .outerjoin(Measurement, Measurement.run_id == Run.id)
                .order_by(Run.id, Measurement.id)
            ).all()
            changes = session.execute(
                select(ChangePoint.series_id, ChangePoint.effect, ChangePoint.withdrawn_reason)
            ).all()
            verdicts = session.execute(select(Series.id, Series.verdict, Series.verdict_reason)).all()
        return "\n".join(str(tuple(row)) for row in (*runs, *changes, *verdicts))

    def messages(self) -> Counter[tuple[str, str]]:
        url = f"http://127.0.0.1:{self.addresses['messages']}/messages.json"
        return Counter((m["kind"], m["title"]) for m in httpx.get(url, timeout=30, trust_env=False).json())

    def await_true(self, condition, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if condition():
                return
            assert self.process.poll() is None, self.said.read_text()
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {what}:\n{self.said.read_text()}")

    def close(self) -> None:
        self.engine.dispose()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


@pytest.fixture
def site():
    home = Path(tempfile.mkdtemp(prefix="kernelwatch-test-"))
    home.chmod(0o711)
    opened = Site(home)
    yield opened
    opened.close()
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.timeout(1500)
def test_every_process_may_die_during_a_measurement_and_nothing_is_lost_or_doubled(site):
    site.push(repeats=40, note="base")
    site.await_true(site.quiet, "the first push")
    for number, (victim, words) in enumerate(VICTIMS.items()):
        site.push(repeats=40, note=f"quiet {number}")
        site.await_true(site.measuring, f"a measurement in which to kill {victim}")
        site.kill(words)
        site.await_true(lambda: not site.measuring(), f"the run after {victim} died")
        site.await_true(site.quiet, f"rest after {victim} died")
    slow = site.push(repeats=60, note="one and a half times the work")
    site.await_true(site.measuring, "the slow push")
    site.kill("service.celery_app worker")  # the one that suspects, bisects and tells
    site.await_true(site.quiet, "the verdict")
    with Session(site.engine) as session:
        runs = session.scalars(select(Run).where(Run.reason == "push").order_by(Run.id)).all()
        assert [run.state for run in runs] == ["reported"] * (len(VICTIMS) + 2)
        doubled = session.execute(
            select(Measurement.series_id, Measurement.commit_id, func.count())
            .join(Run, Run.id == Measurement.run_id)
            .where(Run.reason == "push")
            .group_by(Measurement.series_id, Measurement.commit_id)
            .having(func.count() != 1)
        ).all()
        assert doubled == []
        per_run = session.execute(
            select(Measurement.run_id, func.count()).join(Run).where(Run.reason == "push").group_by(Measurement.run_id)
        ).all()
        assert {count for _, count in per_run} == {2}
        regression = session.scalars(select(Regression)).one_or_none()
        assert regression is not None, site.story()
        assert session.scalars(select(Run).where(Run.commit_id == regression.culprit_commit_id)).first() is not None
        assert regression.effect == pytest.approx(0.5, abs=0.15)
        sent = Counter(session.scalars(select(Notification.event).where(Notification.state == "sent")))
    assert slow
    assert sent == {"opened": 2, "attributed": 2}
    assert set(site.messages().values()) == {1}
    assert sum(site.messages().values()) == 4
