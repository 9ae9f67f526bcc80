"""What is measured: repositories, commits, runs, series, measurements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "environment",
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("comparable_key", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_environment")),
        sa.UniqueConstraint("fingerprint", name=op.f("uq_environment_fingerprint")),
    )
    op.create_index(op.f("ix_environment_comparable_key"), "environment", ["comparable_key"], unique=False)
    op.create_table(
        "repository",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("clone_url", sa.Text(), nullable=False),
        sa.Column("default_branch", sa.Text(), server_default="main", nullable=False),
        sa.Column("suite_path", sa.Text(), server_default="kernels_under_test", nullable=False),
        sa.Column("measure_policy", sa.Text(), server_default="tip", nullable=False),
        sa.Column("build_command", sa.Text(), nullable=True),
        sa.Column("watched_paths", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("time_limit_s", sa.Double(), server_default=sa.text("600"), nullable=False),
        sa.Column("webhook_secret", sa.Text(), nullable=False),
        sa.Column("pools", sa.ARRAY(sa.Text()), server_default=sa.text("'{cpu}'"), nullable=False),
        sa.Column(
            "settings", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("measure_policy IN ('tip', 'every')", name=op.f("ck_repository_measure_policy")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_repository")),
        sa.UniqueConstraint("name", name=op.f("uq_repository_name")),
    )
    op.create_table(
        "runner",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("comparable_key", sa.Text(), nullable=False),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("quarantined_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("quarantine_reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runner")),
        sa.UniqueConstraint("name", name=op.f("uq_runner_name")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_runner_token_hash")),
    )
    op.create_index(op.f("ix_runner_pool"), "runner", ["pool"], unique=False)
    op.create_table(
        "benchmark",
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("control", sa.Boolean(), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repository.id"], name=op.f("fk_benchmark_repository_id_repository"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_benchmark")),
        sa.UniqueConstraint("repository_id", "name", "version", name=op.f("uq_benchmark_repository_id_name_version")),
    )
    op.create_table(
        "git_commit",
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("sha", sa.Text(), nullable=False),
        sa.Column("parents", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("position", sa.Integer(), nullable=True),
        sa.Column("suite_tree", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("author_email", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repository.id"],
            name=op.f("fk_git_commit_repository_id_repository"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_git_commit")),
        sa.UniqueConstraint("repository_id", "sha", name=op.f("uq_git_commit_repository_id_sha")),
    )
    op.create_index(
        op.f("ix_git_commit_repository_id_position"), "git_commit", ["repository_id", "position"], unique=False
    )
    op.create_table(
        "webhook_delivery",
        sa.Column("guid", sa.Text(), nullable=False),
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=True),
        sa.Column("before_sha", sa.Text(), nullable=True),
        sa.Column("after_sha", sa.Text(), nullable=True),
        sa.Column("forced", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("handled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repository.id"],
            name=op.f("fk_webhook_delivery_repository_id_repository"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_delivery")),
        sa.UniqueConstraint("guid", name=op.f("uq_webhook_delivery_guid")),
    )
    op.create_index(op.f("ix_webhook_delivery_repository_id"), "webhook_delivery", ["repository_id"], unique=False)
    op.create_table(
        "run",
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("state", sa.Text(), server_default="queued", nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("partner_shas", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("workload_keys", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column(
            "protocol", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("attempt", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("runner_id", sa.BigInteger(), nullable=True),
        sa.Column("lease_token", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stage", sa.Text(), nullable=True),
        sa.Column("done", sa.Integer(), nullable=True),
        sa.Column("total", sa.Integer(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("device_s", sa.Double(), nullable=True),
        sa.Column("environment_id", sa.BigInteger(), nullable=True),
        sa.Column("harness_epoch", sa.Integer(), nullable=True),
        sa.Column("canary_wall_s", sa.Double(), nullable=True),
        sa.Column("canary_cpu_s", sa.Double(), nullable=True),
        sa.Column("flags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("failure_stage", sa.Text(), nullable=True),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("failure_log", sa.Text(), nullable=True),
        sa.Column(
            "commit_failures",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("analysed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint(
            "reason IN ('push', 'pull_request', 'nightly', 'bisection', 'backfill', 'confirm', 'manual')",
            name=op.f("ck_run_reason"),
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'leased', 'measuring', 'reported', 'failed', 'abandoned', 'skipped')",
            name=op.f("ck_run_state"),
        ),
        sa.ForeignKeyConstraint(
            ["commit_id"], ["git_commit.id"], name=op.f("fk_run_commit_id_git_commit"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name=op.f("fk_run_environment_id_environment")),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repository.id"], name=op.f("fk_run_repository_id_repository"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["runner_id"], ["runner.id"], name=op.f("fk_run_runner_id_runner"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("dedupe_key", name=op.f("uq_run_dedupe_key")),
    )
    op.create_index(op.f("ix_run_commit_id"), "run", ["commit_id"], unique=False)
    op.create_index(
        "ix_run_lease",
        "run",
        ["lease_until"],
        unique=False,
        postgresql_where=sa.text("state IN ('leased', 'measuring')"),
    )
    op.create_index(
        "ix_run_queue", "run", ["pool", "priority", "id"], unique=False, postgresql_where=sa.text("state = 'queued'")
    )
    op.create_index(op.f("ix_run_repository_id_id"), "run", ["repository_id", "id"], unique=False)
    op.create_index(
        "ix_run_unanalysed",
        "run",
        ["finished_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('reported', 'failed') AND analysed_at IS NULL"),
    )
    op.create_table(
        "workload",
        sa.Column("benchmark_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("axes", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("flops", sa.Double(), nullable=False),
        sa.Column("bytes", sa.Double(), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmark.id"], name=op.f("fk_workload_benchmark_id_benchmark"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workload")),
        sa.UniqueConstraint("benchmark_id", "key", name=op.f("uq_workload_benchmark_id_key")),
    )
    op.create_table(
        "series",
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("workload_id", sa.BigInteger(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), server_default="s", nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("comparable_key", sa.Text(), nullable=False),
        sa.Column("harness_epoch", sa.Integer(), nullable=False),
        sa.Column("predecessor_id", sa.BigInteger(), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("verdict_reason", sa.Text(), nullable=True),
        sa.Column(
            "detection", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("detected_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("direction IN ('lower', 'higher')", name=op.f("ck_series_direction")),
        sa.ForeignKeyConstraint(["predecessor_id"], ["series.id"], name=op.f("fk_series_predecessor_id_series")),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repository.id"], name=op.f("fk_series_repository_id_repository"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workload.id"], name=op.f("fk_series_workload_id_workload"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint(
            "workload_id",
            "metric",
            "direction",
            "unit",
            "pool",
            "comparable_key",
            "harness_epoch",
            name="uq_series_key",
        ),
    )
    op.create_index(op.f("ix_series_repository_id"), "series", ["repository_id"], unique=False)
    op.create_table(
        "measurement",
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("value_s", sa.Double(), nullable=True),
        sa.Column("half_width_s", sa.Double(), nullable=True),
        sa.Column("median_s", sa.Double(), nullable=True),
        sa.Column("spread", sa.Double(), nullable=True),
        sa.Column("clock", sa.Text(), nullable=False),
        sa.Column("flags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("code_hash", sa.Text(), nullable=True),
        sa.Column("output_hash", sa.Text(), nullable=True),
        sa.Column(
            "static_facts",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("wall_s", sa.ARRAY(sa.Double()), nullable=False),
        sa.Column("cpu_s", sa.ARRAY(sa.Double()), nullable=False),
        sa.Column("block_size", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("block_process", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("block_order", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("block_canary_wall_s", sa.ARRAY(sa.Double()), nullable=False),
        sa.Column("block_canary_cpu_s", sa.ARRAY(sa.Double()), nullable=False),
        sa.Column(
            "block_flags",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint(
            "status IN ('ok', 'wrong_result', 'crashed', 'timed_out', 'too_noisy', 'skipped')",
            name=op.f("ck_measurement_status"),
        ),
        sa.ForeignKeyConstraint(
            ["commit_id"], ["git_commit.id"], name=op.f("fk_measurement_commit_id_git_commit"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_measurement_run_id_run"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_measurement_series_id_series"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
        sa.UniqueConstraint("run_id", "series_id", "commit_id", name=op.f("uq_measurement_run_id_series_id_commit_id")),
    )
    op.create_index(op.f("ix_measurement_series_id_commit_id"), "measurement", ["series_id", "commit_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_measurement_series_id_commit_id"), table_name="measurement")
    op.drop_table("measurement")
    op.drop_index(op.f("ix_series_repository_id"), table_name="series")
    op.drop_table("series")
    op.drop_table("workload")
    op.drop_index(
        "ix_run_unanalysed",
        table_name="run",
        postgresql_where=sa.text("state IN ('reported', 'failed') AND analysed_at IS NULL"),
    )
    op.drop_index(op.f("ix_run_repository_id_id"), table_name="run")
    op.drop_index("ix_run_queue", table_name="run", postgresql_where=sa.text("state = 'queued'"))
    op.drop_index("ix_run_lease", table_name="run", postgresql_where=sa.text("state IN ('leased', 'measuring')"))
    op.drop_index(op.f("ix_run_commit_id"), table_name="run")
    op.drop_table("run")
    op.drop_index(op.f("ix_webhook_delivery_repository_id"), table_name="webhook_delivery")
    op.drop_table("webhook_delivery")
    op.drop_index(op.f("ix_git_commit_repository_id_position"), table_name="git_commit")
    op.drop_table("git_commit")
    op.drop_table("benchmark")
    op.drop_index(op.f("ix_runner_pool"), table_name="runner")
    op.drop_table("runner")
    op.drop_table("repository")
    op.drop_index(op.f("ix_environment_comparable_key"), table_name="environment")
    op.drop_table("environment")
