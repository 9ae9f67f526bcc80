"""Regressions and improvements: the list, and what one of them is made of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, literal, select, true, tuple_
from sqlalchemy.orm import Session, aliased

from service.domain.states import OPEN_REGRESSION_STATES, Direction, RegressionState
from service.store.pages.snapshot import fetch, fetch_one
from service.store.tables import (
    AuditEvent,
    Benchmark,
    Bisection,
    ChangePoint,
    Channel,
    GitCommit,
    Notification,
    Regression,
    Repository,
    Series,
    Workload,
)

PAGE_SIZE = 100
OPEN = tuple(state.value for state in RegressionState if state in OPEN_REGRESSION_STATES)
CLOSED = tuple(state.value for state in RegressionState if state not in OPEN_REGRESSION_STATES)


@dataclass(frozen=True, slots=True)
class RegressionRow:
    """A regression with its range, culprit, and how much it touches."""

    regression_id: int
    repository_id: int
    repository: str
    clone_url: str
    direction: str
    state: str
    severity: str
    effect: float
    effect_low: float
    effect_high: float
    assignee: str | None
    note: str | None
    expires_at: datetime | None
    created_at: datetime
    confirmed_at: datetime | None
    attributed_at: datetime | None
    closed_at: datetime | None
    good_sha: str
    good_position: int | None
    bad_sha: str
    bad_position: int | None
    bad_subject: str
    culprit_sha: str | None
    culprit_subject: str | None
    culprit_author: str | None
    series_count: int
    benchmarks: list[str] | None
    pools: list[str] | None
    bisection_state: str | None
    bisection_verdict: str | None
    bisection_spent_s: float | None
    origin: dict[str, Any] | None


def _rows() -> Select[*tuple[Any, ...]]:
    good, bad, culprit = aliased(GitCommit), aliased(GitCommit), aliased(GitCommit)
    touched = (
        select(
            func.count(ChangePoint.id).label("series_count"),
            func.array_agg(Benchmark.name.distinct()).label("benchmarks"),
            func.array_agg(Series.pool.distinct()).label("pools"),
        )
        .join(Series, Series.id == ChangePoint.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(ChangePoint.regression_id == Regression.id, ChangePoint.withdrawn_at.is_(None))
        .lateral("touched")
    )
    search = (
        select(Bisection.state, Bisection.verdict, Bisection.spent_s)
        .where(Bisection.regression_id == Regression.id)
        .order_by(Bisection.generation.desc())
        .limit(1)
        .lateral("search")
    )
    return (
        select(
            Regression.id.label("regression_id"),
            Regression.repository_id,
            Repository.name.label("repository"),
            Repository.clone_url,
            Regression.direction,
            Regression.state,
            Regression.severity,
            Regression.effect,
            Regression.effect_low,
            Regression.effect_high,
            Regression.assignee,
            Regression.note,
            Regression.expires_at,
            Regression.created_at,
            Regression.confirmed_at,
            Regression.attributed_at,
            Regression.closed_at,
            good.sha.label("good_sha"),
            good.position.label("good_position"),
            bad.sha.label("bad_sha"),
            bad.position.label("bad_position"),
            bad.subject.label("bad_subject"),
            culprit.sha.label("culprit_sha"),
            culprit.subject.label("culprit_subject"),
            culprit.author.label("culprit_author"),
            touched.c.series_count,
            touched.c.benchmarks,
            touched.c.pools,
            search.c.state.label("bisection_state"),
            search.c.verdict.label("bisection_verdict"),
            search.c.spent_s.label("bisection_spent_s"),
            Regression.origin,
        )
        .join(Repository, Repository.id == Regression.repository_id)
        .join(good, good.id == Regression.good_commit_id)
        .join(bad, bad.id == Regression.bad_commit_id)
        .join(culprit, culprit.id == Regression.culprit_commit_id, isouter=True)
        .join(touched, true(), isouter=True)
        .join(search, true(), isouter=True)
    )


def _worst_first() -> tuple[ColumnElement[Any], ...]:
    severity = case({"critical": 0, "high": 1, "medium": 2, "low": 3}, value=Regression.severity, else_=literal(4))
    worse_first = (Regression.direction == Direction.REGRESSION.value).desc()
    return (worse_first, severity, func.abs(Regression.effect).desc(), Regression.id.desc())


def regression_rows(
    session: Session,
    *,
    states: Collection[str] = OPEN,
    repository: str = "",
    since: datetime | None = None,
    page: int = 0,
) -> tuple[RegressionRow, ...]:
    """Return one page of regressions in the given states, opened at or after `since`, worst first."""
    statement = _rows().where(Regression.state.in_(list(states)))
    if repository:
        statement = statement.where(Repository.name == repository)
    if since is not None:
        statement = statement.where(Regression.created_at >= since)
    statement = statement.order_by(*_worst_first()).limit(PAGE_SIZE).offset(page * PAGE_SIZE)
    return fetch(session, statement, RegressionRow)


def regression_row(session: Session, regression_id: int) -> RegressionRow | None:
    """One regression, or None."""
    return fetch_one(session, _rows().where(Regression.id == regression_id), RegressionRow)


def regressions_of_commit(session: Session, commit_id: int) -> tuple[RegressionRow, ...]:
    """Every regression that blames this commit, ends at it, or has a change point at it."""
    touching = select(ChangePoint.regression_id).where(
        ChangePoint.commit_id == commit_id, ChangePoint.withdrawn_at.is_(None)
    )
    statement = _rows().where(
        (Regression.culprit_commit_id == commit_id)
        | (Regression.bad_commit_id == commit_id)
        | Regression.id.in_(touching)
    )
    return fetch(session, statement.order_by(*_worst_first()), RegressionRow)


@dataclass(frozen=True, slots=True)
class TouchedSeries:
    """A series in which the regression shows."""

    series_id: int
    family: str
    workload: str
    benchmark: str
    axes: dict[str, Any]
    pool: str
    metric: str
    unit: str
    better: str
    commit_id: int
    sha: str
    previous_commit_id: int
    before_s: float
    after_s: float
    effect: float
    effect_low: float
    effect_high: float
    z: float
    p_value: float
    detector: str
    detector_version: int
    confirmed_at: datetime | None
    confirmed_run_id: int | None
    confirmed_pairs: int | None


def touched_series(session: Session, regression_id: int) -> tuple[TouchedSeries, ...]:
    """The change points of a regression, the largest effect first."""
    statement = (
        select(
            Series.id.label("series_id"),
            Benchmark.family,
            Workload.key.label("workload"),
            Benchmark.name.label("benchmark"),
            Workload.axes,
            Series.pool,
            Series.metric,
            Series.unit,
            Series.direction.label("better"),
            ChangePoint.commit_id,
            GitCommit.sha,
            ChangePoint.previous_commit_id,
            ChangePoint.before_s,
            ChangePoint.after_s,
            ChangePoint.effect,
            ChangePoint.effect_low,
            ChangePoint.effect_high,
            ChangePoint.z,
            ChangePoint.p_value,
            ChangePoint.detector,
            ChangePoint.detector_version,
            ChangePoint.confirmed_at,
            ChangePoint.confirmed_run_id,
            ChangePoint.confirmed_pairs,
        )
        .join(Series, Series.id == ChangePoint.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .join(GitCommit, GitCommit.id == ChangePoint.commit_id)
        .where(ChangePoint.regression_id == regression_id, ChangePoint.withdrawn_at.is_(None))
        .order_by(func.abs(ChangePoint.effect).desc(), ChangePoint.id)
    )
    return fetch(session, statement, TouchedSeries)


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """A message of the outbox."""

    notification_id: int
    regression_id: int | None
    subject: str | None  # of news that is about no regression
    channel: str
    channel_kind: str
    event: str
    occurrence: int
    state: str
    attempts: int
    created_at: datetime
    next_attempt_at: datetime
    sent_at: datetime | None
    external_id: str | None
    error: str | None
    direction: str | None
    effect: float | None
    effect_low: float | None
    effect_high: float | None
    culprit_sha: str | None


def notifications(
    session: Session, *, regression_id: int | None = None, state: str = "", before_id: int | None = None
) -> tuple[NotificationRow, ...]:
    """Return messages, newest first: of one regression, or a page of all of them."""
    culprit = aliased(GitCommit)
    statement = (
        select(
            Notification.id.label("notification_id"),
            Notification.regression_id,
            func.coalesce(Notification.words, Notification.subject).label("subject"),
            Channel.name.label("channel"),
            Channel.kind.label("channel_kind"),
            Notification.event,
            Notification.occurrence,
            Notification.state,
            Notification.attempts,
            Notification.created_at,
            Notification.next_attempt_at,
            Notification.sent_at,
            Notification.external_id,
            Notification.error,
            Regression.direction,
            Regression.effect,
            Regression.effect_low,
            Regression.effect_high,
            culprit.sha.label("culprit_sha"),
        )
        .join(Channel, Channel.id == Notification.channel_id)
        .join(Regression, Regression.id == Notification.regression_id, isouter=True)
        .join(culprit, culprit.id == Regression.culprit_commit_id, isouter=True)
    )
    if regression_id is not None:
        statement = statement.where(Notification.regression_id == regression_id)
    if state:
        statement = statement.where(Notification.state == state)
    if before_id is not None:
        statement = statement.where(Notification.id < before_id)
    return fetch(session, statement.order_by(Notification.id.desc()).limit(PAGE_SIZE), NotificationRow)


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel, without its address and secrets."""

    channel_id: int
    repository: str
    name: str
    kind: str
    enabled: bool
    min_severity: str
    directions: list[str]
    quiet: str | None
    daily: str | None
    zone: str | None


def channels(session: Session) -> tuple[ChannelRow, ...]:
    """Return every channel by repository and name."""
    statement = (
        select(
            Channel.id.label("channel_id"),
            Repository.name.label("repository"),
            Channel.name,
            Channel.kind,
            Channel.enabled,
            Channel.min_severity,
            Channel.directions,
            Channel.config["quiet"].astext.label("quiet"),
            Channel.config["daily"].astext.label("daily"),
            Channel.config["zone"].astext.label("zone"),
        )
        .join(Repository, Repository.id == Channel.repository_id)
        .order_by(Repository.name, Channel.name)
        .limit(PAGE_SIZE)
    )
    return fetch(session, statement, ChannelRow)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Who did what to a regression."""

    created_at: datetime
    actor: str
    action: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


def audit_of(session: Session, subjects: Collection[tuple[str, int]]) -> tuple[AuditRow, ...]:
    """The log of these subjects (type, id) together, oldest first."""
    statement = select(
        AuditEvent.created_at, AuditEvent.actor, AuditEvent.action, AuditEvent.before, AuditEvent.after
    ).where(tuple_(AuditEvent.subject_type, AuditEvent.subject_id).in_(list(subjects)))
    return fetch(session, statement.order_by(AuditEvent.id).limit(200), AuditRow)
