"""Runner health: canary history, standing, standing A/A, news of a runner, spread between processes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

REASONS = ["push", "pull_request", "nightly", "bisection", "backfill", "confirm", "verify", "manual", "bridge"]
EVENTS = [
    *("opened", "attributed", "fixed", "reopened", "withdrawn", "environment"),
    *("broken", "repaired", "bimodal"),
]


def upgrade() -> None:
    _standing()
    _job_health()
    _aa_comparison()
    op.add_column("run", sa.Column("for_runner_id", sa.BigInteger(), nullable=True))
    _refers("run", "for_runner_id", "runner")
    op.create_index(op.f("ix_run_runner_id_id"), "run", ["runner_id", "id"], unique=False)
    _hold("run", "reason", [*REASONS, "aa", "canary"])
    op.add_column("notification", sa.Column("words", sa.Text(), nullable=True))
    _hold("notification", "event", [*EVENTS, "runner"])
    op.add_column("measurement", sa.Column("process_sd", sa.Double(), nullable=True))


def _standing() -> None:
    op.add_column("runner", sa.Column("standing", sa.Text(), server_default="trusted", nullable=False))
    op.add_column("runner", sa.Column("standing_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("runner", sa.Column("standing_reason", sa.Text(), nullable=True))
    op.add_column("runner", sa.Column("standing_by", sa.Text(), nullable=True))
    op.add_column("runner", sa.Column("standing_changes", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("runner", sa.Column("judged_from", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        "UPDATE runner SET standing = 'quarantined', standing_since = quarantined_at, "
        "standing_reason = quarantine_reason, standing_by = 'cli' WHERE quarantined_at IS NOT NULL"
    )
    op.drop_column("runner", "quarantined_at")
    op.drop_column("runner", "quarantine_reason")
    op.create_check_constraint(
        op.f("ck_runner_standing"), "runner", "standing IN ('trusted', 'advisory', 'quarantined')"
    )


def _job_health() -> None:
    op.create_table(
        "job_health",
        sa.Column("runner_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("comparable_key", sa.Text(), nullable=True),
        sa.Column("harness_epoch", sa.Integer(), nullable=False),
        sa.Column("compute_canary_s", sa.Double(), nullable=True),
        sa.Column("memory_canary_s", sa.Double(), nullable=True),
        sa.Column("contended", sa.Boolean(), nullable=False),
        sa.Column("ecc_uncorrected", sa.BigInteger(), nullable=False),
        sa.Column("xid_errors", sa.BigInteger(), nullable=False),
        sa.Column("pcie_width", sa.Integer(), nullable=True),
        sa.Column("slowest_nvml_call_s", sa.Double(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("finding", sa.Text(), nullable=True),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.CheckConstraint("verdict IN ('clean', 'bad', 'fault', 'unjudged')", name=op.f("ck_job_health_verdict")),
        *_of_runner_and_run("job_health"),
        sa.UniqueConstraint("run_id", "attempt", name=op.f("uq_job_health_run_id_attempt")),
    )
    op.create_index(op.f("ix_job_health_runner_id_id"), "job_health", ["runner_id", "id"], unique=False)


def _aa_comparison() -> None:
    op.create_table(
        "aa_comparison",
        sa.Column("runner_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=False),
        sa.Column("family", sa.Text(), nullable=False),
        sa.Column("workload_key", sa.Text(), nullable=False),
        sa.Column("effect", sa.Double(), nullable=False),
        sa.Column("effect_low", sa.Double(), nullable=False),
        sa.Column("effect_high", sa.Double(), nullable=False),
        sa.Column("alarmed", sa.Boolean(), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        *_of_runner_and_run("aa_comparison"),
        sa.UniqueConstraint("run_id", name=op.f("uq_aa_comparison_run_id")),
    )
    op.create_index(op.f("ix_aa_comparison_runner_id_id"), "aa_comparison", ["runner_id", "id"], unique=False)


def _of_runner_and_run(table: str) -> tuple[sa.Constraint, ...]:
    return (
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f(f"fk_{table}_run_id_run"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["runner_id"], ["runner.id"], name=op.f(f"fk_{table}_runner_id_runner"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
    )


def downgrade() -> None:
    op.drop_column("measurement", "process_sd")
    op.execute("DELETE FROM notification WHERE event = 'runner'")
    _hold("notification", "event", EVENTS)
    op.drop_column("notification", "words")
    op.execute("DELETE FROM run WHERE reason IN ('aa', 'canary')")
    _hold("run", "reason", REASONS)
    op.drop_index(op.f("ix_run_runner_id_id"), table_name="run")
    op.drop_column("run", "for_runner_id")
    op.drop_table("aa_comparison")
    op.drop_table("job_health")
    op.add_column("runner", sa.Column("quarantined_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("runner", sa.Column("quarantine_reason", sa.Text(), nullable=True))
    op.execute(
        "UPDATE runner SET quarantined_at = standing_since, quarantine_reason = standing_reason "
        "WHERE standing = 'quarantined'"
    )
    op.drop_constraint(op.f("ck_runner_standing"), "runner", type_="check")
    for column in ("judged_from", "standing_changes", "standing_by", "standing_reason", "standing_since", "standing"):
        op.drop_column("runner", column)


def _refers(table: str, column: str, other: str) -> None:
    name = op.f(f"fk_{table}_{column}_{other}")
    op.create_foreign_key(name, table, other, [column], ["id"], ondelete="CASCADE")


def _hold(table: str, column: str, values: list[str]) -> None:
    listed = ", ".join(repr(value) for value in values)
    op.drop_constraint(op.f(f"ck_{table}_{column}"), table, type_="check")
    op.create_check_constraint(op.f(f"ck_{table}_{column}"), table, f"{column} IN ({listed})")
