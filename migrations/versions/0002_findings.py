"""What it means and who is told: change points, regressions, bisections, outbox, tokens, audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_token",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("scope IN ('read', 'write', 'register')", name=op.f("ck_api_token_scope")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_token")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_api_token_token_hash")),
    )
    op.create_table(
        "audit_event",
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject_type", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.BigInteger(), nullable=False),
        sa.Column("before", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("after", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_event")),
    )
    op.create_index(
        op.f("ix_audit_event_subject_type_subject_id"), "audit_event", ["subject_type", "subject_id"], unique=False
    )
    op.create_table(
        "channel",
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("min_severity", sa.Text(), server_default="low", nullable=False),
        sa.Column(
            "events",
            sa.ARRAY(sa.Text()),
            server_default=sa.text("'{opened,attributed,fixed,reopened,withdrawn}'"),
            nullable=False,
        ),
        sa.Column("directions", sa.ARRAY(sa.Text()), server_default=sa.text("'{regression}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint(
            "kind IN ('email', 'slack_webhook', 'slack_bot', 'webhook', 'github_issue')", name=op.f("ck_channel_kind")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"], ["repository.id"], name=op.f("fk_channel_repository_id_repository"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_channel")),
        sa.UniqueConstraint("repository_id", "name", name=op.f("uq_channel_repository_id_name")),
    )
    op.create_index(op.f("ix_channel_repository_id"), "channel", ["repository_id"], unique=False)
    op.create_table(
        "regression",
        sa.Column("repository_id", sa.BigInteger(), nullable=False),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="detected", nullable=False),
        sa.Column("good_commit_id", sa.BigInteger(), nullable=False),
        sa.Column("bad_commit_id", sa.BigInteger(), nullable=False),
        sa.Column("culprit_commit_id", sa.BigInteger(), nullable=True),
        sa.Column("effect", sa.Double(), nullable=False),
        sa.Column("effect_low", sa.Double(), nullable=False),
        sa.Column("effect_high", sa.Double(), nullable=False),
        sa.Column("severity", sa.Text(), server_default="medium", nullable=False),
        sa.Column("assignee", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("attributed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("direction IN ('regression', 'improvement')", name=op.f("ck_regression_direction")),
        sa.CheckConstraint(
            "state IN ('detected', 'confirmed', 'attributed', 'acknowledged', 'fixed', 'expected', 'not_real')",
            name=op.f("ck_regression_state"),
        ),
        sa.ForeignKeyConstraint(
            ["bad_commit_id"], ["git_commit.id"], name=op.f("fk_regression_bad_commit_id_git_commit")
        ),
        sa.ForeignKeyConstraint(
            ["culprit_commit_id"], ["git_commit.id"], name=op.f("fk_regression_culprit_commit_id_git_commit")
        ),
        sa.ForeignKeyConstraint(
            ["good_commit_id"], ["git_commit.id"], name=op.f("fk_regression_good_commit_id_git_commit")
        ),
        sa.ForeignKeyConstraint(
            ["repository_id"],
            ["repository.id"],
            name=op.f("fk_regression_repository_id_repository"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_regression")),
        sa.UniqueConstraint(
            "repository_id",
            "direction",
            "good_commit_id",
            "bad_commit_id",
            name=op.f("uq_regression_repository_id_direction_good_commit_id_bad_commit_id"),
        ),
    )
    op.create_index(op.f("ix_regression_repository_id_state"), "regression", ["repository_id", "state"], unique=False)
    op.create_table(
        "notification",
        sa.Column("channel_id", sa.BigInteger(), nullable=False),
        sa.Column("regression_id", sa.BigInteger(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("occurrence", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("state", sa.Text(), server_default="pending", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("sending_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("external_id", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint(
            "event IN ('opened', 'attributed', 'fixed', 'reopened', 'withdrawn')", name=op.f("ck_notification_event")
        ),
        sa.CheckConstraint("state IN ('pending', 'sending', 'sent', 'failed')", name=op.f("ck_notification_state")),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["channel.id"], name=op.f("fk_notification_channel_id_channel"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"],
            ["regression.id"],
            name=op.f("fk_notification_regression_id_regression"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification")),
        sa.UniqueConstraint(
            "channel_id",
            "regression_id",
            "event",
            "occurrence",
            name=op.f("uq_notification_channel_id_regression_id_event_occurrence"),
        ),
    )
    op.create_index(
        "ix_notification_due",
        "notification",
        ["next_attempt_at"],
        unique=False,
        postgresql_where=sa.text("state IN ('pending', 'sending')"),
    )
    op.create_table(
        "bisection",
        sa.Column("regression_id", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("state", sa.Text(), server_default="running", nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("commit_shas", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("problem", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("outcome", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("budget_s", sa.Double(), nullable=False),
        sa.Column("spent_s", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("state IN ('running', 'paused', 'done', 'cancelled')", name=op.f("ck_bisection_state")),
        sa.CheckConstraint(
            "verdict IN ('culprit', 'culprits', 'range', 'no_change', 'inconclusive')",
            name=op.f("ck_bisection_verdict"),
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"], ["regression.id"], name=op.f("fk_bisection_regression_id_regression"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_bisection_series_id_series")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bisection")),
        sa.UniqueConstraint("regression_id", "generation", name=op.f("uq_bisection_regression_id_generation")),
    )
    op.create_index(op.f("ix_bisection_regression_id"), "bisection", ["regression_id"], unique=False)
    op.create_table(
        "change_point",
        sa.Column("series_id", sa.BigInteger(), nullable=False),
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("previous_commit_id", sa.BigInteger(), nullable=False),
        sa.Column("regression_id", sa.BigInteger(), nullable=True),
        sa.Column("direction", sa.Text(), nullable=False),
        sa.Column("detector", sa.Text(), nullable=False),
        sa.Column("detector_version", sa.Integer(), nullable=False),
        sa.Column("before_s", sa.Double(), nullable=False),
        sa.Column("after_s", sa.Double(), nullable=False),
        sa.Column("effect", sa.Double(), nullable=False),
        sa.Column("effect_low", sa.Double(), nullable=False),
        sa.Column("effect_high", sa.Double(), nullable=False),
        sa.Column("z", sa.Double(), nullable=False),
        sa.Column("p_value", sa.Double(), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("withdrawn_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("direction IN ('regression', 'improvement')", name=op.f("ck_change_point_direction")),
        sa.ForeignKeyConstraint(
            ["commit_id"], ["git_commit.id"], name=op.f("fk_change_point_commit_id_git_commit"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["previous_commit_id"],
            ["git_commit.id"],
            name=op.f("fk_change_point_previous_commit_id_git_commit"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["regression_id"],
            ["regression.id"],
            name=op.f("fk_change_point_regression_id_regression"),
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=op.f("fk_change_point_series_id_series"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_change_point")),
        sa.UniqueConstraint("series_id", "commit_id", name=op.f("uq_change_point_series_id_commit_id")),
    )
    op.create_index(op.f("ix_change_point_regression_id"), "change_point", ["regression_id"], unique=False)
    op.create_table(
        "bisection_probe",
        sa.Column("bisection_id", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("partners", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("measure_order", sa.ARRAY(sa.Integer()), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("posterior", sa.ARRAY(sa.Double()), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.ForeignKeyConstraint(
            ["bisection_id"],
            ["bisection.id"],
            name=op.f("fk_bisection_probe_bisection_id_bisection"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["run.id"], name=op.f("fk_bisection_probe_run_id_run"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_bisection_probe")),
        sa.UniqueConstraint("bisection_id", "seq", name=op.f("uq_bisection_probe_bisection_id_seq")),
    )
    op.create_index(op.f("ix_bisection_probe_run_id"), "bisection_probe", ["run_id"], unique=False)


def downgrade() -> None:
    op.drop_index(op.f("ix_bisection_probe_run_id"), table_name="bisection_probe")
    op.drop_table("bisection_probe")
    op.drop_index(op.f("ix_change_point_regression_id"), table_name="change_point")
    op.drop_table("change_point")
    op.drop_index(op.f("ix_bisection_regression_id"), table_name="bisection")
    op.drop_table("bisection")
    op.drop_index(
        "ix_notification_due", table_name="notification", postgresql_where=sa.text("state IN ('pending', 'sending')")
    )
    op.drop_table("notification")
    op.drop_index(op.f("ix_regression_repository_id_state"), table_name="regression")
    op.drop_table("regression")
    op.drop_index(op.f("ix_channel_repository_id"), table_name="channel")
    op.drop_table("channel")
    op.drop_index(op.f("ix_audit_event_subject_type_subject_id"), table_name="audit_event")
    op.drop_table("audit_event")
    op.drop_table("api_token")
