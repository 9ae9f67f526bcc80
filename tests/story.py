"""A whole story without HTTP: commits in the store, a simulated device, detection, bisection and the outbox.

`Story.push` measures the tip of a push and then lets everything that was ordered run to its end, as a runner would.
A second `Story` over the same database goes on where the first was left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from service.contract import RunReason
from service.domain.states import Direction, RegressionState
from service.store.bulk import insert_missing
from service.store.tables import (
    Channel,
    GitCommit,
    Notification,
    Regression,
    Repository,
    Run,
    Runner,
)
from service.usecases import analyse, dispatch, ingest
from service.usecases.policy import DetectionPolicy
from tests.simulated_runner import SimulatedRunner


@dataclass(frozen=True)
class Planted:
    """One commit of the line: what it does to the families' times, or that it leaves the suite alone."""

    factor: dict[str, float] = field(default_factory=dict)
    docs: bool = False
    broken: bool = False
    wrong: str | None = None


@dataclass
class Story:
    """A repository with a planted line of commits and a device that measures it."""

    sessions: sessionmaker[Session]
    line: list[Planted]
    seed: int = 0
    options: dict = field(default_factory=dict)
    pools: tuple[str, ...] = ("cpu",)

    def __post_init__(self):
        self.shas = [f"{self.seed:04x}{position:036x}" for position in range(len(self.line))]
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.device = SimulatedRunner(
            line=self.shas,
            steps={sha: plan.factor for sha, plan in zip(self.shas, self.line, strict=True)},
            seed=self.seed,
            broken=frozenset(sha for sha, plan in zip(self.shas, self.line, strict=True) if plan.broken),
            wrong={sha: plan.wrong for sha, plan in zip(self.shas, self.line, strict=True) if plan.wrong},
            **self.options,
        )
        self.runs = 0
        with self.sessions.begin() as session:
            self._fill(session)

    def _fill(self, session):
        known = session.scalars(select(Repository)).first()
        if known is not None:
            self.repository_id = known.id
            self.runner_ids = dict(session.execute(select(Runner.pool, Runner.id)).all())
            return
        repository = Repository(name="acme/kernels", clone_url="file:///nowhere", webhook_secret="s" * 32)
        runners = [
            Runner(name=pool, pool=pool, token_hash=pool, device="simulated", comparable_key="cpu:simulated", facts={})
            for pool in self.pools
        ]
        session.add_all([repository, *runners])
        session.flush()
        self.repository_id = repository.id
        self.runner_ids = {runner.pool: runner.id for runner in runners}
        for kind in ("email", "slack_webhook"):
            session.add(Channel(repository_id=repository.id, name=kind, kind=kind, config={}))
        tree, rows = "tree0", []
        for position, plan in enumerate(self.line):
            tree = tree if plan.docs and position else f"tree{position}"
            rows.append(
                {
                    "repository_id": repository.id,
                    "sha": self.shas[position],
                    "parents": [self.shas[position - 1]] if position else [],
                    "position": position,
                    "suite_tree": tree,
                    "author": "Ada",
                    "author_email": "ada@example.org",
                    "subject": f"commit {position}",
                    "committed_at": self.now,
                }
            )
        insert_missing(session, GitCommit, rows)

    def commit_id(self, position: int) -> int:
        with self.sessions() as session:
            return session.scalars(select(GitCommit.id).filter_by(position=position)).one()

    def push(self, tip: int, *, reason: RunReason = RunReason.PUSH) -> None:
        """Order the tip's run and let the device work until nothing is queued."""
        for pool in self.pools:
            self.order(tip, pool=pool, reason=reason)
        self.work()

    def order(self, tip: int, *, pool: str = "cpu", reason: RunReason = RunReason.PUSH) -> None:
        """Queue a run of one commit."""
        with self.sessions.begin() as session:
            dispatch.order_run(
                session,
                repository_id=self.repository_id,
                commit_id=self.commit_id(tip),
                pool=pool,
                reason=reason,
                dedupe_key=f"{reason}:{tip}:{pool}:{self.runs}",
            )

    def work(self, *, limit: int = 60) -> None:
        """Measure, store and analyse until the queues are empty."""
        for _ in range(limit):
            if not sum(self.step(pool) for pool in self.pools):
                return
        raise AssertionError(f"still busy after {limit} rounds")

    def step(self, pool: str = "cpu") -> bool:
        """One run from claim to analysis; False if none was queued."""
        run_id = self.measure(pool)
        if run_id is None:
            return False
        self.analyse(run_id)
        return True

    def measure(self, pool: str = "cpu") -> int | None:
        """Claim one run and hand in its report; returns the run, or None if none was queued."""
        self.now += timedelta(seconds=10)
        with self.sessions.begin() as session:
            runner = session.get_one(Runner, self.runner_ids[pool])
            order = dispatch.claim(session, runner=runner, run_id=None, now=self.now, lease_s=90)
        if order is None:
            return None
        report = self.device.report(order, now=self.now.timestamp())
        with self.sessions.begin() as session:
            runner = session.get_one(Runner, self.runner_ids[pool])
            ingest.store_report(session, report, runner=runner, now=self.now, max_attempts=3)
        self.runs += 1
        return order.run_id

    def analyse(self, run_id: int) -> None:
        """What follows a report."""
        with self.sessions.begin() as session:
            analyse.analyse_run(session, run_id=run_id, now=self.now, policy=DetectionPolicy())

    def found(self, direction: Direction = Direction.REGRESSION) -> dict[int, str]:
        """Culprit position -> state, of every regression that was not taken back; -1 stands for no culprit yet."""
        with self.sessions() as session:
            rows = session.execute(
                select(GitCommit.position, Regression.state)
                .select_from(Regression)
                .outerjoin(GitCommit, GitCommit.id == Regression.culprit_commit_id)
                .where(Regression.direction == direction, Regression.state != RegressionState.NOT_REAL)
            )
            return {-1 if position is None else position: state for position, state in rows}

    def told(self) -> list[tuple[int, str]]:
        """(channel, event) of every outbox row, in order."""
        with self.sessions() as session:
            rows = session.execute(select(Notification.channel_id, Notification.event).order_by(Notification.id))
            return [tuple(row) for row in rows]

    def run_count(self, reason: RunReason) -> int:
        with self.sessions() as session:
            return len(session.scalars(select(Run.id).where(Run.reason == reason)).all())
