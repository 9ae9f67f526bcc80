"""News that is no change of speed (wrong results, broken builds, the weekly list of two-level series); tiers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

EVENTS = ["opened", "attributed", "fixed", "reopened", "withdrawn", "environment"]
NEW_EVENTS = ["broken", "repaired", "bimodal"]
TOLD = "'{opened,attributed,fixed,reopened,withdrawn}'"
TOLD_NOW = "'{opened,attributed,fixed,reopened,withdrawn,broken,repaired}'"


def upgrade() -> None:
    op.add_column("workload", sa.Column("tier", sa.Text(), server_default="core", nullable=False))
    op.create_check_constraint(op.f("ck_workload_tier"), "workload", "tier IN ('core', 'nightly', 'weekly')")
    op.add_column("notification", sa.Column("subject", sa.Text(), nullable=True))
    op.alter_column("notification", "regression_id", nullable=True)
    op.create_check_constraint(
        op.f("ck_notification_about"), "notification", "(regression_id IS NULL) <> (subject IS NULL)"
    )
    op.create_unique_constraint("uq_notification_subject", "notification", ["channel_id", "subject", "event"])
    op.alter_column("channel", "events", server_default=sa.text(TOLD_NOW))
    _hold([*EVENTS, *NEW_EVENTS])


def downgrade() -> None:
    op.execute("DELETE FROM notification WHERE subject IS NOT NULL")
    _hold(EVENTS)
    op.alter_column("channel", "events", server_default=sa.text(TOLD))
    op.drop_constraint("uq_notification_subject", "notification", type_="unique")
    op.drop_constraint(op.f("ck_notification_about"), "notification", type_="check")
    op.alter_column("notification", "regression_id", nullable=False)
    op.drop_column("notification", "subject")
    op.drop_constraint(op.f("ck_workload_tier"), "workload", type_="check")
    op.drop_column("workload", "tier")


def _hold(events: list[str]) -> None:
    op.drop_constraint(op.f("ck_notification_event"), "notification", type_="check")
    op.create_check_constraint(
        op.f("ck_notification_event"), "notification", f"event IN ({', '.join(repr(event) for event in events)})"
    )
