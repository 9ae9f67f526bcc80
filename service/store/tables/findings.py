"""Change points, regressions, bisections, the outbox, tokens and the audit log: what numbers mean, who was told."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from service.domain.states import (
    BisectionState,
    BisectionVerdict,
    ChannelKind,
    Direction,
    NotificationEvent,
    NotificationState,
    RegressionState,
)
from service.store.tables.base import Base, Stamped, one_of


class Regression(Stamped, Base):
    """A group of change points of one commit range: what people are told about."""

    __tablename__ = "regression"
    repository_id: Mapped[int] = mapped_column(ForeignKey("repository.id", ondelete="CASCADE"))
    direction: Mapped[str]
    state: Mapped[str] = mapped_column(server_default=RegressionState.DETECTED.value)
    good_commit_id: Mapped[int] = mapped_column(ForeignKey("git_commit.id"))  # last commit known at the old level
    bad_commit_id: Mapped[int] = mapped_column(ForeignKey("git_commit.id"))  # first commit known at the new level
    culprit_commit_id: Mapped[int | None] = mapped_column(ForeignKey("git_commit.id"))
    effect: Mapped[float]  # relative change of the leading series: +0.14 = 14 % slower
    effect_low: Mapped[float]
    effect_high: Mapped[float]
    severity: Mapped[str] = mapped_column(server_default="medium")
    part: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))  # split from others of the same range
    life: Mapped[int] = mapped_column(SmallInteger, server_default=text("1"))  # one more after each re-opening
    assignee: Mapped[str | None]
    note: Mapped[str | None]
    origin: Mapped[dict[str, Any] | None]  # what git says of the culprit: owners, side commits, dependency bumps
    expires_at: Mapped[datetime | None]
    confirmed_at: Mapped[datetime | None]
    attributed_at: Mapped[datetime | None]
    verified_at: Mapped[datetime | None]  # when a measurement proved the fix
    closed_at: Mapped[datetime | None]
    __table_args__ = (
        one_of("direction", Direction),
        one_of("state", RegressionState),
        UniqueConstraint(
            "repository_id", "direction", "good_commit_id", "bad_commit_id", "part", name="uq_regression_range"
        ),
        Index(None, "repository_id", "state"),
    )


class ChangePoint(Stamped, Base):
    """The detector's finding in one series: the level moved between `previous_commit` and `commit`."""

    __tablename__ = "change_point"
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"))
    commit_id: Mapped[int] = mapped_column(ForeignKey("git_commit.id", ondelete="CASCADE"))
    previous_commit_id: Mapped[int] = mapped_column(ForeignKey("git_commit.id", ondelete="CASCADE"))
    regression_id: Mapped[int | None] = mapped_column(ForeignKey("regression.id", ondelete="SET NULL"), index=True)
    direction: Mapped[str]
    detector: Mapped[str]
    detector_version: Mapped[int] = mapped_column(Integer)
    before_s: Mapped[float]
    after_s: Mapped[float]
    effect: Mapped[float]
    effect_low: Mapped[float]
    effect_high: Mapped[float]
    z: Mapped[float]
    p_value: Mapped[float]
    confirmed_at: Mapped[datetime | None]
    confirmed_run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"))
    confirmed_pairs: Mapped[int | None] = mapped_column(Integer)  # of processes, in that run
    withdrawn_at: Mapped[datetime | None]
    withdrawn_reason: Mapped[str | None]
    restarts_baseline: Mapped[bool] = mapped_column(server_default=text("false"))  # moved, but by the machine
    delay_commits: Mapped[int | None] = mapped_column(Integer)  # first-parent commits from the bad end to the proof
    delay_device_s: Mapped[float | None]  # device-seconds from the suspicion to the proof
    __table_args__ = (
        Index(
            "uq_change_point_standing",
            "series_id",
            "commit_id",
            unique=True,
            postgresql_where=text("withdrawn_at IS NULL"),
        ),
        Index(None, "series_id", "commit_id"),
        one_of("direction", Direction),
    )


class Bisection(Stamped, Base):
    """The search for the culprit of one regression."""

    __tablename__ = "bisection"
    regression_id: Mapped[int] = mapped_column(ForeignKey("regression.id", ondelete="CASCADE"), index=True)
    generation: Mapped[int] = mapped_column(Integer, server_default=text("1"))  # re-runs of the same search
    state: Mapped[str] = mapped_column(server_default=BisectionState.RUNNING.value)
    pool: Mapped[str]
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id"))  # the leading series, whose workload is measured
    commit_shas: Mapped[list[str]]  # good end first, then the candidates in first-parent order
    problem: Mapped[dict[str, Any]]
    outcome: Mapped[dict[str, Any] | None]
    verdict: Mapped[str | None]
    budget_s: Mapped[float]
    spent_s: Mapped[float] = mapped_column(server_default=text("0"))
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        one_of("state", BisectionState),
        one_of("verdict", BisectionVerdict),
        UniqueConstraint("regression_id", "generation"),
    )


class BisectionProbe(Stamped, Base):
    """One batch of a bisection: stored before it is acted on, with the posterior after it."""

    __tablename__ = "bisection_probe"
    bisection_id: Mapped[int] = mapped_column(ForeignKey("bisection.id", ondelete="CASCADE"))
    seq: Mapped[int] = mapped_column(Integer)
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"), index=True)
    position: Mapped[int] = mapped_column(Integer)
    partners: Mapped[list[int]]
    measure_order: Mapped[list[int]]
    phase: Mapped[str]
    posterior: Mapped[list[float] | None]
    finished_at: Mapped[datetime | None]
    __table_args__ = (UniqueConstraint("bisection_id", "seq"),)


class Channel(Stamped, Base):
    """Where a repository's notifications go."""

    __tablename__ = "channel"
    repository_id: Mapped[int] = mapped_column(ForeignKey("repository.id", ondelete="CASCADE"), index=True)
    name: Mapped[str]
    kind: Mapped[str]
    config: Mapped[dict[str, Any]]
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    min_severity: Mapped[str] = mapped_column(server_default="low")
    events: Mapped[list[str]] = mapped_column(
        server_default=text("'{opened,attributed,fixed,reopened,withdrawn,broken,repaired}'")
    )
    directions: Mapped[list[str]] = mapped_column(server_default=text("'{regression}'"))
    __table_args__ = (one_of("kind", ChannelKind), UniqueConstraint("repository_id", "name"))


class Notification(Stamped, Base):
    """The outbox: one row per channel, regression or other subject, and event; unique keys are what "once" means."""

    __tablename__ = "notification"
    channel_id: Mapped[int] = mapped_column(ForeignKey("channel.id", ondelete="CASCADE"))
    regression_id: Mapped[int | None] = mapped_column(ForeignKey("regression.id", ondelete="CASCADE"))
    subject: Mapped[str | None]  # of news that is about no regression: a breakage of a commit, a week
    words: Mapped[str | None]  # of a runner's news, as it stood when it was written
    event: Mapped[str]
    occurrence: Mapped[int] = mapped_column(SmallInteger, server_default=text("1"))  # a re-opening starts the next
    state: Mapped[str] = mapped_column(server_default=NotificationState.PENDING.value)
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    next_attempt_at: Mapped[datetime] = mapped_column(server_default=func.now())
    sending_since: Mapped[datetime | None]
    digest_at: Mapped[datetime | None]  # held back until then, to be told with the others of its channel
    digest_id: Mapped[int | None]  # the first of the messages that were sent as one; set when they are claimed
    sent_at: Mapped[datetime | None]
    external_id: Mapped[str | None]  # the message's id at the other side: thread, Message-ID
    error: Mapped[str | None]
    __table_args__ = (
        one_of("event", NotificationEvent),
        one_of("state", NotificationState),
        CheckConstraint("(regression_id IS NULL) <> (subject IS NULL)", name="about"),
        UniqueConstraint("channel_id", "regression_id", "event", "occurrence"),
        UniqueConstraint("channel_id", "subject", "event", name="uq_notification_subject"),
        Index("ix_notification_due", "next_attempt_at", postgresql_where=text("state IN ('pending', 'sending')")),
    )


class ApiToken(Stamped, Base):
    """A bearer token of a person or an agent, or a runner's one-time registration token (scope `register`)."""

    __tablename__ = "api_token"
    name: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    scope: Mapped[str]  # read | write | register
    pool: Mapped[str | None]
    expires_at: Mapped[datetime | None]
    used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    __table_args__ = (CheckConstraint("scope IN ('read', 'write', 'register')", name="scope"),)


class AuditEvent(Stamped, Base):
    """Who did what, when, with the state before and after."""

    __tablename__ = "audit_event"
    actor: Mapped[str]
    action: Mapped[str]
    subject_type: Mapped[str]
    subject_id: Mapped[int]
    before: Mapped[dict[str, Any] | None]
    after: Mapped[dict[str, Any] | None]
    __table_args__ = (Index(None, "subject_type", "subject_id"),)
