"""Steps that the machine made: nobody is blamed, but the baseline starts anew behind them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "change_point", sa.Column("restarts_baseline", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )


def downgrade() -> None:
    op.drop_column("change_point", "restarts_baseline")
