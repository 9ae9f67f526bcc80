"""A step that was taken back no longer keeps the next one from its place: one change point that stands per commit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

OLD = "uq_change_point_series_id_commit_id"
STANDING = "uq_change_point_standing"


def upgrade() -> None:
    op.drop_constraint(op.f(OLD), "change_point", type_="unique")
    op.create_index(
        op.f(STANDING),
        "change_point",
        ["series_id", "commit_id"],
        unique=True,
        postgresql_where=sa.text("withdrawn_at IS NULL"),
    )
    op.create_index(op.f("ix_change_point_series_id_commit_id"), "change_point", ["series_id", "commit_id"])


def downgrade() -> None:
    """Of several at one commit the newest stays: the old schema has room for one."""
    op.execute(
        "DELETE FROM change_point old USING change_point new "
        "WHERE old.series_id = new.series_id AND old.commit_id = new.commit_id AND old.withdrawn_at IS NOT NULL "
        "AND (new.withdrawn_at IS NULL OR new.id > old.id)"
    )
    op.drop_index(op.f("ix_change_point_series_id_commit_id"), "change_point")
    op.drop_index(op.f(STANDING), "change_point")
    op.create_unique_constraint(op.f(OLD), "change_point", ["series_id", "commit_id"])
