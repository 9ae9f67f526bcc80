"""Messages held back become one digest; what was never sent can be taken back; GitLab issues."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATES = ["pending", "sending", "sent", "failed"]
KINDS = ["email", "slack_webhook", "slack_bot", "webhook", "github_issue"]


def one_of(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


def upgrade() -> None:
    op.add_column("notification", sa.Column("digest_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("notification", sa.Column("digest_id", sa.BigInteger(), nullable=True))
    _hold("notification", "state", [*STATES, "cancelled"])
    _hold("channel", "kind", [*KINDS, "gitlab_issue"])


def downgrade() -> None:
    op.execute("DELETE FROM channel WHERE kind = 'gitlab_issue'")
    op.execute("DELETE FROM notification WHERE state = 'cancelled'")
    _hold("channel", "kind", KINDS)
    _hold("notification", "state", STATES)
    op.drop_column("notification", "digest_id")
    op.drop_column("notification", "digest_at")


def _hold(table: str, column: str, values: list[str]) -> None:
    op.drop_constraint(op.f(f"ck_{table}_{column}"), table, type_="check")
    op.create_check_constraint(op.f(f"ck_{table}_{column}"), table, one_of(column, values))
