"""Facts of machine code per commit; workloads that were not timed because their code is another commit's."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

STATUSES = ["ok", "wrong_result", "crashed", "timed_out", "too_noisy", "skipped"]


def upgrade() -> None:
    op.create_table(
        "static_code",
        sa.Column("commit_id", sa.BigInteger(), nullable=False),
        sa.Column("benchmark_id", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.BigInteger(), nullable=True),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("toolchain", sa.Text(), nullable=False),
        sa.Column("code_hash", sa.Text(), nullable=True),
        sa.Column("recipe_hash", sa.Text(), nullable=True),
        sa.Column("facts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("read_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmark.id"], name=op.f("fk_static_code_benchmark_id_benchmark"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["commit_id"], ["git_commit.id"], name=op.f("fk_static_code_commit_id_git_commit"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_static_code_run_id_run"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_static_code")),
        sa.UniqueConstraint(
            "commit_id",
            "benchmark_id",
            "target",
            "toolchain",
            name=op.f("uq_static_code_commit_id_benchmark_id_target_toolchain"),
        ),
    )
    op.create_index(op.f("ix_static_code_benchmark_id"), "static_code", ["benchmark_id"])
    op.add_column("run", sa.Column("static_missing", sa.Text(), nullable=True))
    op.add_column("measurement", sa.Column("identical_to", sa.Text(), nullable=True))
    _hold([*STATUSES, "identical"])


def downgrade() -> None:
    op.execute("DELETE FROM measurement WHERE status = 'identical'")
    _hold(STATUSES)
    op.drop_column("measurement", "identical_to")
    op.drop_column("run", "static_missing")
    op.drop_table("static_code")


def _hold(statuses: list[str]) -> None:
    op.drop_constraint(op.f("ck_measurement_status"), "measurement", type_="check")
    op.create_check_constraint(
        op.f("ck_measurement_status"), "measurement", f"status IN ({', '.join(repr(one) for one in statuses)})"
    )
