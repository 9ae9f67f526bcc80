"""Bridges between the series of two environments, and which of the series that continue each other lives."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

REASONS = ["push", "pull_request", "nightly", "bisection", "backfill", "confirm", "verify", "manual"]


def upgrade() -> None:
    _hold([*REASONS, "bridge"])
    op.add_column("series", sa.Column("history_at", sa.DateTime(timezone=True), nullable=True))
    op.execute(
        "UPDATE series SET history_at = seen.newest FROM ("
        "SELECT measurement.series_id, max(measurement.measured_at) AS newest FROM measurement"
        " JOIN run ON run.id = measurement.run_id AND measurement.commit_id = run.commit_id"
        " WHERE run.reason IN ('push', 'nightly') GROUP BY measurement.series_id"
        ") AS seen WHERE seen.series_id = series.id"
    )


def downgrade() -> None:
    op.drop_column("series", "history_at")
    op.execute("DELETE FROM run WHERE reason = 'bridge'")
    _hold(REASONS)


def _hold(reasons: list[str]) -> None:
    op.drop_constraint(op.f("ck_run_reason"), "run", type_="check")
    op.create_check_constraint(op.f("ck_run_reason"), "run", f"reason IN ({', '.join(repr(one) for one in reasons)})")
