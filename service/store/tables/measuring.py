"""Repositories, commits, runs, series and measurements: what was measured, where, and every raw sample."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from service.contract import MeasurementStatus, RunReason, Tier
from service.domain.states import (
    JobVerdict,
    MeasurePolicy,
    RunState,
    Standing,
)
from service.store.tables.base import Base, Keyed, Stamped, one_of


class Repository(Stamped, Base):
    """A git repository whose kernels are measured."""

    __tablename__ = "repository"
    name: Mapped[str] = mapped_column(unique=True)  # "owner/name", as the forge's payload says it
    clone_url: Mapped[str]
    default_branch: Mapped[str] = mapped_column(server_default="main")
    suite_path: Mapped[str] = mapped_column(server_default="kernels_under_test")
    measure_policy: Mapped[str] = mapped_column(server_default=MeasurePolicy.TIP.value)
    build_command: Mapped[str | None]
    watched_paths: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    time_limit_s: Mapped[float] = mapped_column(server_default=text("600"))
    webhook_secret: Mapped[str]
    pools: Mapped[list[str]] = mapped_column(server_default=text("'{cpu}'"))
    settings: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    __table_args__ = (one_of("measure_policy", MeasurePolicy),)


class GitCommit(Keyed, Base):
    """A commit that a mirror has seen. `position` counts first parents of the default branch, from the root = 0."""

    __tablename__ = "git_commit"
    repository_id: Mapped[int] = mapped_column(ForeignKey("repository.id", ondelete="CASCADE"))
    sha: Mapped[str]
    parents: Mapped[list[str]]
    position: Mapped[int | None] = mapped_column(Integer)  # NULL: not on the first-parent line of the default branch
    suite_tree: Mapped[str | None]  # hash of the suite tree and watched paths; equal to the parent's = cannot matter
    author: Mapped[str]
    author_email: Mapped[str]
    subject: Mapped[str]
    committed_at: Mapped[datetime]
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    __table_args__ = (
        UniqueConstraint("repository_id", "sha"),
        Index(None, "repository_id", "position"),
    )


class WebhookDelivery(Keyed, Base):
    """One delivery of a forge; its GUID makes a repeat a no-op."""

    __tablename__ = "webhook_delivery"
    guid: Mapped[str] = mapped_column(unique=True)
    repository_id: Mapped[int] = mapped_column(ForeignKey("repository.id", ondelete="CASCADE"), index=True)
    event: Mapped[str]
    ref: Mapped[str | None]
    before_sha: Mapped[str | None]
    after_sha: Mapped[str | None]
    forced: Mapped[bool] = mapped_column(server_default=text("false"))
    received_at: Mapped[datetime] = mapped_column(server_default=func.now())
    handled_at: Mapped[datetime | None]
    note: Mapped[str | None]


class Runner(Stamped, Base):
    """A device host. It knows its token; we know only the token's hash."""

    __tablename__ = "runner"
    name: Mapped[str] = mapped_column(unique=True)
    pool: Mapped[str] = mapped_column(index=True)
    token_hash: Mapped[str] = mapped_column(unique=True)
    device: Mapped[str]
    comparable_key: Mapped[str]
    facts: Mapped[dict[str, Any]]
    heartbeat_at: Mapped[datetime | None]
    standing: Mapped[str] = mapped_column(server_default=Standing.TRUSTED.value)
    standing_since: Mapped[datetime | None]
    standing_reason: Mapped[str | None]
    standing_by: Mapped[str | None]  # who put it there by hand; NULL: its own jobs did, and may change it
    standing_changes: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    judged_from: Mapped[datetime | None]  # released by hand then: what it showed before counts no more
    __table_args__ = (one_of("standing", Standing),)


class Environment(Keyed, Base):
    """Where runs were measured: one row per distinct full fingerprint."""

    __tablename__ = "environment"
    fingerprint: Mapped[str] = mapped_column(unique=True)
    comparable_key: Mapped[str] = mapped_column(index=True)
    device: Mapped[str]
    facts: Mapped[dict[str, Any]]
    first_seen_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Benchmark(Keyed, Base):
    """A kernel under measurement: one implementation of one problem, at one version."""

    __tablename__ = "benchmark"
    repository_id: Mapped[int] = mapped_column(ForeignKey("repository.id", ondelete="CASCADE"))
    name: Mapped[str]
    version: Mapped[int] = mapped_column(Integer)
    family: Mapped[str]
    problem: Mapped[str]
    device: Mapped[str]
    control: Mapped[bool]
    __table_args__ = (UniqueConstraint("repository_id", "name", "version"),)


class Workload(Keyed, Base):
    """A benchmark at concrete axis values, with its work: FLOPs and compulsory bytes per launch."""

    __tablename__ = "workload"
    benchmark_id: Mapped[int] = mapped_column(ForeignKey("benchmark.id", ondelete="CASCADE"))
    key: Mapped[str]
    axes: Mapped[dict[str, Any]]
    flops: Mapped[float]
    bytes: Mapped[float]
    tier: Mapped[str] = mapped_column(server_default=Tier.CORE.value)
    __table_args__ = (one_of("tier", Tier), UniqueConstraint("benchmark_id", "key"))


class Run(Stamped, Base):
    """One commit to measure on one pool. Its state and lease are the truth; queue messages are doorbells."""

    __tablename__ = "run"
    repository_id: Mapped[int] = mapped_column(ForeignKey("repository.id", ondelete="CASCADE"))
    commit_id: Mapped[int] = mapped_column(ForeignKey("git_commit.id", ondelete="CASCADE"), index=True)
    pool: Mapped[str]
    reason: Mapped[str]
    priority: Mapped[int] = mapped_column(Integer, server_default=text("0"))  # higher is sooner
    state: Mapped[str] = mapped_column(server_default=RunState.QUEUED.value)
    dedupe_key: Mapped[str] = mapped_column(unique=True)
    partner_shas: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    workload_keys: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    protocol: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    attempt: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    for_runner_id: Mapped[int | None] = mapped_column(ForeignKey("runner.id", ondelete="CASCADE"))  # for it alone
    runner_id: Mapped[int | None] = mapped_column(ForeignKey("runner.id", ondelete="SET NULL"))
    lease_token: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    stage: Mapped[str | None]
    done: Mapped[int | None] = mapped_column(Integer)
    total: Mapped[int | None] = mapped_column(Integer)
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    device_s: Mapped[float | None]
    environment_id: Mapped[int | None] = mapped_column(ForeignKey("environment.id"))
    harness_epoch: Mapped[int | None] = mapped_column(Integer)
    canary_wall_s: Mapped[float | None]
    canary_cpu_s: Mapped[float | None]
    flags: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    failure_stage: Mapped[str | None]
    failure_kind: Mapped[str | None]
    failure_reason: Mapped[str | None]
    failure_log: Mapped[str | None] = mapped_column(deferred=True)
    commit_failures: Mapped[list[Any]] = mapped_column(server_default=text("'[]'::jsonb"))
    static_missing: Mapped[str | None]  # why machine code was not read, or not all of it
    retracted_at: Mapped[datetime | None]  # found invalid later: its measurements count no more
    retracted_reason: Mapped[str | None]
    analysed_at: Mapped[datetime | None]  # when detection and bisection last finished with this run
    __table_args__ = (
        one_of("state", RunState),
        one_of("reason", RunReason),
        Index("ix_run_queue", "pool", "priority", "id", postgresql_where=text("state = 'queued'")),
        Index("ix_run_lease", "lease_until", postgresql_where=text("state IN ('leased', 'measuring')")),
        Index(None, "repository_id", "id"),
        Index(None, "runner_id", "id"),
        Index(
            "ix_run_unanalysed",
            "finished_at",
            postgresql_where=text("state IN ('reported', 'failed') AND analysed_at IS NULL"),
        ),
    )


class Series(Keyed, Base):
    """The history of one metric of one workload where all else is comparable.

    When anything in the key changes a new series starts, linked to its predecessor; never a change point.
    """

    __tablename__ = "series"
    repository_id: Mapped[int] = mapped_column(ForeignKey("repository.id", ondelete="CASCADE"), index=True)
    workload_id: Mapped[int] = mapped_column(ForeignKey("workload.id", ondelete="CASCADE"))
    metric: Mapped[str]
    direction: Mapped[str]  # "lower" or "higher" is better
    unit: Mapped[str] = mapped_column(server_default="s")
    pool: Mapped[str]
    comparable_key: Mapped[str]
    harness_epoch: Mapped[int] = mapped_column(Integer)
    predecessor_id: Mapped[int | None] = mapped_column(ForeignKey("series.id"))
    history_at: Mapped[datetime | None]  # when a push or nightly run last brought it
    verdict: Mapped[str | None]  # the detector's last word, with its reason and the facts it rests on
    verdict_reason: Mapped[str | None]
    detection: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    detected_at: Mapped[datetime | None]
    __table_args__ = (
        UniqueConstraint(
            "workload_id",
            "metric",
            "direction",
            "unit",
            "pool",
            "comparable_key",
            "harness_epoch",
            name="uq_series_key",
        ),
        CheckConstraint("direction IN ('lower', 'higher')", name="direction"),
    )


class Measurement(Keyed, Base):
    """All samples of one workload of one commit in one run. Raw seconds are kept; the rest is derived from them."""

    __tablename__ = "measurement"
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"))
    commit_id: Mapped[int] = mapped_column(ForeignKey("git_commit.id", ondelete="CASCADE"))
    status: Mapped[str]
    error: Mapped[str | None]
    n: Mapped[int] = mapped_column(Integer)  # samples
    value_s: Mapped[float | None]  # canary-normalised figure; for other metrics the value in the metric's unit
    half_width_s: Mapped[float | None]
    median_s: Mapped[float | None]  # raw median on the figure's clock
    spread: Mapped[float | None]  # relative inter-quartile range of the raw samples
    process_sd: Mapped[float | None]  # relative standard deviation between its processes, of kernel / canary
    clock: Mapped[str]
    flags: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    code_hash: Mapped[str | None]
    output_hash: Mapped[str | None]
    static_facts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    identical_to: Mapped[str | None]  # the commit whose code this is; it was not timed for that
    measured_at: Mapped[datetime]
    wall_s: Mapped[list[float]] = mapped_column(deferred=True)
    cpu_s: Mapped[list[float]] = mapped_column(deferred=True)
    block_size: Mapped[list[int]] = mapped_column(deferred=True)  # samples per block, in order
    block_process: Mapped[list[int]] = mapped_column(deferred=True)
    block_order: Mapped[list[int]] = mapped_column(deferred=True)
    block_canary_wall_s: Mapped[list[float]] = mapped_column(deferred=True)
    block_canary_cpu_s: Mapped[list[float]] = mapped_column(deferred=True)
    block_flags: Mapped[list[Any]] = mapped_column(deferred=True, server_default=text("'[]'::jsonb"))
    __table_args__ = (
        one_of("status", MeasurementStatus),
        UniqueConstraint("run_id", "series_id", "commit_id"),
        Index(None, "series_id", "commit_id"),
    )


class StaticCode(Keyed, Base):
    """What the machine code of one implementation at one commit says for one target: exact, without noise."""

    __tablename__ = "static_code"
    commit_id: Mapped[int] = mapped_column(ForeignKey("git_commit.id", ondelete="CASCADE"))
    benchmark_id: Mapped[int] = mapped_column(ForeignKey("benchmark.id", ondelete="CASCADE"), index=True)
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="SET NULL"))  # that brought it first
    target: Mapped[str]  # "cpu" or an architecture such as "sm_90a"
    toolchain: Mapped[str]  # facts of different compilers are never compared
    code_hash: Mapped[str | None]
    recipe_hash: Mapped[str | None]
    facts: Mapped[dict[str, Any]]
    error: Mapped[str | None]
    read_at: Mapped[datetime] = mapped_column(server_default=func.now())
    __table_args__ = (UniqueConstraint("commit_id", "benchmark_id", "target", "toolchain"),)


class JobHealth(Keyed, Base):
    """What one attempt of one run showed of its runner: the canary history, and the signs of a sick board."""

    __tablename__ = "job_health"
    runner_id: Mapped[int] = mapped_column(ForeignKey("runner.id", ondelete="CASCADE"))
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    attempt: Mapped[int] = mapped_column(Integer)
    reported_at: Mapped[datetime]
    comparable_key: Mapped[str | None]
    harness_epoch: Mapped[int] = mapped_column(Integer)
    compute_canary_s: Mapped[float | None]
    memory_canary_s: Mapped[float | None]
    contended: Mapped[bool]
    ecc_uncorrected: Mapped[int]
    xid_errors: Mapped[int]
    pcie_width: Mapped[int | None] = mapped_column(Integer)
    slowest_nvml_call_s: Mapped[float]
    verdict: Mapped[str]
    finding: Mapped[str | None]
    __table_args__ = (
        one_of("verdict", JobVerdict),
        UniqueConstraint("run_id", "attempt"),
        Index(None, "runner_id", "id"),
    )


class AaComparison(Keyed, Base):
    """One comparison of a commit with itself: what the verdict said where there was nothing to find."""

    __tablename__ = "aa_comparison"
    runner_id: Mapped[int] = mapped_column(ForeignKey("runner.id", ondelete="CASCADE"))
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), unique=True)
    family: Mapped[str]
    workload_key: Mapped[str]
    effect: Mapped[float]
    effect_low: Mapped[float]
    effect_high: Mapped[float]
    alarmed: Mapped[bool]
    judged_at: Mapped[datetime]
    __table_args__ = (Index(None, "runner_id", "id"),)
