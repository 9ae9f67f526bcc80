"""The run that proved a change point, so that its levels, effect and pairs are of one measurement."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("change_point", sa.Column("confirmed_run_id", sa.BigInteger(), nullable=True))
    op.add_column("change_point", sa.Column("confirmed_pairs", sa.Integer(), nullable=True))
    op.create_foreign_key(
        op.f("fk_change_point_confirmed_run_id_run"),
        "change_point",
        "run",
        ["confirmed_run_id"],
        ["id"],
        ondelete="SET NULL",
    )


def downgrade() -> None:
    op.drop_constraint(op.f("fk_change_point_confirmed_run_id_run"), "change_point", type_="foreignkey")
    op.drop_column("change_point", "confirmed_pairs")
    op.drop_column("change_point", "confirmed_run_id")
