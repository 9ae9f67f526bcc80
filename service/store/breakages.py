"""What commits broke other than speed, in SQL: wrong results and builds that fail, found, told of, and over.

All of it is about history: the run's own commit on the first-parent line, in one pool, measured by a push, a night, a
backfill or by hand. Commits that only a search or a re-run touches are no news.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from service.contract import CANNOT_BUILD, FailureStage, MeasurementStatus
from service.domain.notice import BreakageKind, breakage_subject
from service.domain.points import HISTORY_REASONS
from service.domain.states import NotificationEvent, RunState
from service.store.tables import Benchmark, Channel, GitCommit, Measurement, Notification, Run, Series, Workload

CANNOT_BEGIN = (FailureStage.BUILD, FailureStage.DISCOVER)
WHOLE_SUITE = 0  # stands for the workload where not one of them could be built


@dataclass(frozen=True, slots=True)
class Broken:
    """One workload that a commit broke, or the whole suite."""

    workload_id: int
    workload: str
    error: str


def broken_in(session: Session, *, run: Run, kind: BreakageKind) -> tuple[Broken, ...]:
    """Return what a finished run found broken at its own commit."""
    found = [
        Broken(workload_id, key, error or "")
        for workload_id, key, error in session.execute(_measured(run).where(_is_broken(kind)).order_by(Workload.key))
    ]
    if kind is BreakageKind.BUILD_FAILED and run.state == RunState.FAILED and run.failure_stage in CANNOT_BEGIN:
        found.append(Broken(WHOLE_SUITE, "the suite", run.failure_reason or ""))
    return tuple(found)


def right_in(session: Session, *, run: Run) -> frozenset[int]:
    """Return the workloads that a run measured well at its own commit; with any of them, the suite builds."""
    right = session.scalars(_measured(run).where(Measurement.status == MeasurementStatus.OK)).all()
    return frozenset(right) | (frozenset({WHOLE_SUITE}) if right else frozenset())


def _measured(run: Run) -> Select[int, str, str | None]:
    return (
        select(Workload.id, Workload.key, Measurement.error)
        .select_from(Measurement)
        .join(Series, Series.id == Measurement.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(Measurement.run_id == run.id, Measurement.commit_id == run.commit_id, Benchmark.control.is_(False))
    )


def _is_broken(kind: BreakageKind) -> ColumnElement[bool]:
    if kind is BreakageKind.WRONG_RESULT:
        return Measurement.status == MeasurementStatus.WRONG_RESULT
    return and_(Measurement.status == MeasurementStatus.CRASHED, Measurement.error.startswith(CANNOT_BUILD))


def is_newest(session: Session, *, run: Run, position: int) -> bool:
    """Whether no later commit of the line has been measured in the run's pool: else its breakage is past."""
    later = _history(run).where(GitCommit.position > position).limit(1)
    return session.scalar(later) is None


def broken_before(
    session: Session, *, run: Run, position: int, kind: BreakageKind, workload_ids: Collection[int]
) -> frozenset[int]:
    """Return those of some workloads whose last word before this commit, in this pool, was that they are broken."""
    past = (
        select(
            Workload.id.label("workload_id"),
            _is_broken(kind).label("broken"),
            func.row_number()
            .over(partition_by=Workload.id, order_by=(GitCommit.position.desc(), Measurement.id.desc()))
            .label("age"),
        )
        .select_from(Measurement)
        .join(Run, and_(Run.id == Measurement.run_id, Run.commit_id == Measurement.commit_id))
        .join(GitCommit, GitCommit.id == Run.commit_id)
        .join(Series, Series.id == Measurement.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .where(*_of_history(run), GitCommit.position < position, Workload.id.in_(workload_ids))
        .subquery()
    )
    found = set(session.scalars(select(past.c.workload_id).where(past.c.age == 1, past.c.broken)))
    last = session.scalars(
        select(Run)
        .join(GitCommit, GitCommit.id == Run.commit_id)
        .where(*_of_history(run), GitCommit.position < position)
        .order_by(GitCommit.position.desc(), Run.id.desc())
        .limit(1)
    ).first()
    if last is not None and last.state == RunState.FAILED and last.failure_stage in CANNOT_BEGIN:
        found.add(WHOLE_SUITE)
    return frozenset(found)


def _history(run: Run) -> Select[int]:
    return select(Run.id).join(GitCommit, GitCommit.id == Run.commit_id).where(*_of_history(run))


def _of_history(run: Run) -> tuple[ColumnElement[bool], ...]:
    return (
        Run.repository_id == run.repository_id,
        Run.pool == run.pool,
        Run.reason.in_(sorted(HISTORY_REASONS)),
        Run.retracted_at.is_(None),
        or_(Run.state == RunState.REPORTED, and_(Run.state == RunState.FAILED, Run.failure_stage.in_(CANNOT_BEGIN))),
    )


def open_subjects(session: Session, *, repository_id: int, kind: BreakageKind) -> Sequence[str]:
    """Return the breakages of a kind that some channel was told of and none was told the end of."""
    told, ended = aliased(Notification), aliased(Notification)
    found = session.scalars(
        select(told.subject)
        .distinct()
        .join(Channel, Channel.id == told.channel_id)
        .where(
            Channel.repository_id == repository_id,
            told.event == NotificationEvent.BROKEN,
            told.subject.startswith(breakage_subject(kind, commit_id=0)[:-1]),
            ~select(ended.id)
            .where(ended.subject == told.subject, ended.event == NotificationEvent.REPAIRED)
            .where(ended.channel_id == told.channel_id)
            .exists(),
        )
        .order_by(told.subject)
    )
    return [subject for subject in found if subject is not None]


def runs_of(session: Session, *, run: Run, commit_id: int) -> Sequence[Run]:
    """Return the history runs of a commit in the pool of a run."""
    return session.scalars(select(Run).where(*_of_history(run), Run.commit_id == commit_id).order_by(Run.id)).all()
