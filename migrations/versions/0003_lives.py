"""The life of a regression: verified fixes, come-backs and splits; retracted runs; the price of a proof."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

RANGE = ["repository_id", "direction", "good_commit_id", "bad_commit_id"]
RANGE_KEY = "uq_regression_repository_id_direction_good_commit_id_bad_commit_id"
PART_KEY = "uq_regression_range"
REASONS = ["push", "pull_request", "nightly", "bisection", "backfill", "confirm", "manual"]


def one_of(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


def upgrade() -> None:
    op.add_column("regression", sa.Column("verified_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("regression", sa.Column("part", sa.SmallInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("regression", sa.Column("life", sa.SmallInteger(), server_default=sa.text("1"), nullable=False))
    op.drop_constraint(op.f(RANGE_KEY), "regression", type_="unique")
    op.create_unique_constraint(op.f(PART_KEY), "regression", [*RANGE, "part"])
    op.add_column("change_point", sa.Column("withdrawn_reason", sa.Text(), nullable=True))
    op.add_column("change_point", sa.Column("delay_commits", sa.Integer(), nullable=True))
    op.add_column("change_point", sa.Column("delay_device_s", sa.Double(), nullable=True))
    op.add_column("run", sa.Column("retracted_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("run", sa.Column("retracted_reason", sa.Text(), nullable=True))
    _reasons([*REASONS[:-1], "verify", REASONS[-1]])


def downgrade() -> None:
    _reasons(REASONS)
    for table, columns in {
        "run": ["retracted_reason", "retracted_at"],
        "change_point": ["delay_device_s", "delay_commits", "withdrawn_reason"],
    }.items():
        for column in columns:
            op.drop_column(table, column)
    op.drop_constraint(op.f(PART_KEY), "regression", type_="unique")
    op.create_unique_constraint(op.f(RANGE_KEY), "regression", RANGE)
    for column in ("life", "part", "verified_at"):
        op.drop_column("regression", column)


def _reasons(values: list[str]) -> None:
    op.drop_constraint(op.f("ck_run_reason"), "run", type_="check")
    op.create_check_constraint(op.f("ck_run_reason"), "run", one_of("reason", values))
