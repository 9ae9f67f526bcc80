"""What the demo reads from the database: whether everything is quiet, what happened meanwhile, and what was found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from service.domain.notice import breakage_of
from service.domain.reproduce import compare_command
from service.domain.states import BisectionState, NotificationState, RunState
from service.store import bisections
from service.store.tables import (
    Benchmark,
    Bisection,
    ChangePoint,
    Channel,
    GitCommit,
    Measurement,
    Notification,
    Regression,
    Repository,
    Run,
    Series,
    Workload,
)

BUSY_RUNS = (RunState.QUEUED, RunState.LEASED, RunState.MEASURING)
SHOWN_SHA = 10


@dataclass(frozen=True, slots=True)
class Found:
    """A regression or improvement as the service knows it."""

    regression_id: int
    direction: str
    state: str
    culprit_sha: str | None
    families: frozenset[str]
    effect: float
    series: int
    cost_device_s: float  # to confirm and to search
    told: tuple[tuple[str, str, int], ...]  # (channel, event, messages sent)
    reproduce: str = ""  # the command that shows it in a clone


@dataclass(frozen=True, slots=True)
class ToldBreakage:
    """One message about a commit that is broken, or right again; `sha` is the commit that broke it."""

    kind: str
    sha: str
    channel: str
    event: str


@dataclass(frozen=True, slots=True)
class Totals:
    """What the whole demo cost."""

    runs: int
    failed_runs: int
    measurements: int
    wrong_results: int
    device_s: float


class Watch:
    """Reads one repository; `news` returns each happening once."""

    def __init__(self, engine: Engine, *, repository: str) -> None:
        self._engine = engine
        self._repository = repository
        self._said: set[str] = set()

    def quiet(self) -> bool:
        """Whether nothing is queued, measured, undecided or undelivered."""
        with Session(self._engine) as session:
            mine = select(Repository.id).where(Repository.name == self._repository).scalar_subquery()
            busy_runs = select(Run.id).where(
                Run.repository_id == mine,
                Run.state.in_(BUSY_RUNS) | ((Run.state != RunState.SKIPPED) & Run.analysed_at.is_(None)),
            )
            searching = (
                select(Bisection.id)
                .join(Regression, Regression.id == Bisection.regression_id)
                .where(Regression.repository_id == mine, Bisection.state == BisectionState.RUNNING)
            )
            unsent = (
                select(Notification.id)
                .join(Channel, Channel.id == Notification.channel_id)
                .where(
                    Channel.repository_id == mine,
                    Notification.state.in_((NotificationState.PENDING, NotificationState.SENDING)),
                )
            )
            return not any(session.scalar(statement.limit(1)) for statement in (busy_runs, searching, unsent))

    def news(self) -> Iterator[str]:
        """Lines about what has happened since the last call."""
        with Session(self._engine) as session:
            lines = [*self._runs(session), *self._regressions(session), *self._messages(session)]
        for key, line in lines:
            if key not in self._said:
                self._said.add(key)
                yield line

    def _runs(self, session: Session) -> Iterator[tuple[str, str]]:
        measured = (
            select(func.count()).where(Measurement.run_id == Run.id).correlate(Run).scalar_subquery().label("measured")
        )
        rows = session.execute(
            select(Run.id, Run.reason, Run.state, Run.device_s, Run.failure_reason, GitCommit.sha, measured)
            .join(GitCommit, GitCommit.id == Run.commit_id)
            .join(Repository, Repository.id == Run.repository_id)
            .where(Repository.name == self._repository)
            .order_by(Run.id)
        )
        for run_id, reason, state, device_s, failure, sha, count in rows:
            what = f"  run {run_id:<3} {reason:<10} {sha[:SHOWN_SHA]}"
            if state == RunState.REPORTED:
                yield f"run {run_id} {state}", f"{what}  {count} measurements, {device_s or 0:.1f} device-seconds"
            elif state in {RunState.FAILED, RunState.ABANDONED, RunState.SKIPPED}:
                yield f"run {run_id} {state}", f"{what}  {state}: {failure}"

    def _regressions(self, session: Session) -> Iterator[tuple[str, str]]:
        rows = session.execute(
            select(Regression, GitCommit.sha, GitCommit.subject)
            .outerjoin(GitCommit, GitCommit.id == Regression.culprit_commit_id)
            .join(Repository, Repository.id == Regression.repository_id)
            .where(Repository.name == self._repository)
            .order_by(Regression.id)
        )
        for regression, sha, subject in rows:
            name = f"  {regression.direction} {regression.id}"
            yield f"regression {regression.id}", f"{name}: {regression.effect:+.1%}, confirmed by an interleaved re-run"
            if sha is not None:
                yield f"regression {regression.id} culprit", f"{name}: it was {sha[:SHOWN_SHA]} “{subject}”"

    def _messages(self, session: Session) -> Iterator[tuple[str, str]]:
        rows = session.execute(
            select(
                Notification.id,
                Notification.event,
                Notification.state,
                Notification.error,
                Channel.name,
                Notification.regression_id,
                Notification.subject,
            )
            .join(Channel, Channel.id == Notification.channel_id)
            .join(Repository, Repository.id == Channel.repository_id)
            .where(Repository.name == self._repository)
            .order_by(Notification.id)
        )
        for number, event, state, error, channel, regression_id, subject in rows:
            if state == NotificationState.SENT:
                what = f"number {regression_id}" if subject is None else subject.partition(":")[0].replace("_", " ")
                yield f"message {number}", f"  told {channel}: {event}, {what}"
            elif error:
                yield f"message {number} {error}", f"  could not tell {channel}: {error}"

    def found(self) -> tuple[Found, ...]:
        """Everything that the service holds to be a change."""
        with Session(self._engine) as session:
            rows = session.execute(
                select(Regression, GitCommit.sha)
                .outerjoin(GitCommit, GitCommit.id == Regression.culprit_commit_id)
                .join(Repository, Repository.id == Regression.repository_id)
                .where(Repository.name == self._repository)
                .order_by(Regression.id)
            ).all()
            return tuple(self._describe(session, regression, sha) for regression, sha in rows)

    def _describe(self, session: Session, regression: Regression, sha: str | None) -> Found:
        families = session.scalars(
            select(Benchmark.family)
            .join(Workload, Workload.benchmark_id == Benchmark.id)
            .join(Series, Series.workload_id == Workload.id)
            .join(ChangePoint, ChangePoint.series_id == Series.id)
            .where(ChangePoint.regression_id == regression.id)
        ).all()
        clearest = session.scalar(
            select(Workload.key)
            .join(Series, Series.workload_id == Workload.id)
            .join(ChangePoint, ChangePoint.series_id == Series.id)
            .where(ChangePoint.regression_id == regression.id, ChangePoint.withdrawn_at.is_(None))
            .order_by(func.abs(ChangePoint.z).desc(), ChangePoint.id)
            .limit(1)
        )
        told = session.execute(
            select(Channel.name, Notification.event, func.count())
            .join(Channel, Channel.id == Notification.channel_id)
            .where(Notification.regression_id == regression.id, Notification.state == NotificationState.SENT)
            .group_by(Channel.name, Notification.event)
        ).all()
        return Found(
            regression_id=regression.id,
            direction=regression.direction,
            state=regression.state,
            culprit_sha=sha,
            families=frozenset(families),
            effect=regression.effect,
            series=len(families),
            cost_device_s=bisections.cost_of(session, regression_id=regression.id).total_s,
            told=tuple(sorted((channel, event, count) for channel, event, count in told)),
            reproduce=compare_command(
                good_sha=session.get_one(GitCommit, regression.good_commit_id).sha,
                bad_sha=session.get_one(GitCommit, regression.bad_commit_id).sha,
                culprit_sha=sha,
                workload=clearest,
            ),
        )

    def breakages(self) -> tuple[ToldBreakage, ...]:
        """What was told of commits that compute wrong results or do not build."""
        with Session(self._engine) as session:
            rows = session.execute(
                select(Notification.subject, Channel.name, Notification.event)
                .join(Channel, Channel.id == Notification.channel_id)
                .join(Repository, Repository.id == Channel.repository_id)
                .where(
                    Repository.name == self._repository,
                    Notification.subject.is_not(None),
                    Notification.state == NotificationState.SENT,
                )
                .order_by(Notification.id)
            ).all()
            found = []
            for subject, channel, event in rows:
                kind, commit_id = breakage_of(subject or "")
                sha = session.get_one(GitCommit, commit_id).sha
                found.append(ToldBreakage(kind=kind.value, sha=sha, channel=channel, event=event))
            return tuple(found)

    def totals(self) -> Totals:
        """The cost of everything so far."""
        with Session(self._engine) as session:
            mine = select(Repository.id).where(Repository.name == self._repository).scalar_subquery()
            runs, device_s, failed = session.execute(
                select(func.count(), func.sum(Run.device_s), func.count().filter(Run.state == RunState.FAILED)).where(
                    Run.repository_id == mine, Run.state != RunState.SKIPPED
                )
            ).one()
            measurements, wrong = session.execute(
                select(func.count(), func.count().filter(Measurement.status == "wrong_result"))
                .join(Run, Run.id == Measurement.run_id)
                .where(Run.repository_id == mine)
            ).one()
        return Totals(
            runs=runs,
            failed_runs=failed,
            measurements=measurements,
            wrong_results=wrong,
            device_s=float(device_s or 0.0),
        )
