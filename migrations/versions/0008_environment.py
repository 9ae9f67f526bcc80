"""News of the environment, for whoever owns the machines."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

EVENTS = ["opened", "attributed", "fixed", "reopened", "withdrawn"]


def upgrade() -> None:
    _hold([*EVENTS, "environment"])


def downgrade() -> None:
    op.execute("DELETE FROM notification WHERE event = 'environment'")
    _hold(EVENTS)


def _hold(events: list[str]) -> None:
    op.drop_constraint(op.f("ck_notification_event"), "notification", type_="check")
    op.create_check_constraint(
        op.f("ck_notification_event"), "notification", f"event IN ({', '.join(repr(event) for event in events)})"
    )
