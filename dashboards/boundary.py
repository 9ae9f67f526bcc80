"""Where a series continues another: what changed, by how much the level differs, and the lighter line before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from dashboards import formats
from dashboards.figures import ChartEarlier, ChartPoint
from service.contract import RunReason
from service.domain.bridges import Boundary, BoundaryKind, Bridge, bridge_between
from service.domain.points import Figure, Point, to_points
from service.store import bridges, lineage
from service.store.pages import series as series_rows
from service.store.pages.series import ChangeRow, FigureRow, SeriesHead


@dataclass(frozen=True, slots=True)
class Before:
    """The series before this one, with the sentences that the page says of the border between them."""

    series_id: int
    words: str
    size: str
    rows: Sequence[FigureRow]
    position: int


def before(session: Session, head: SeriesHead, rows: Sequence[FigureRow]) -> Before | None:
    """What the series continues; None if it is the first, or has no history of its own yet."""
    boundary = bridges.boundaries(session, series_ids=[head.series_id]).get(head.series_id)
    own = [row.position for row in rows if row.position is not None and row.run_reason != RunReason.BRIDGE.value]
    if boundary is None or head.predecessor_id is None or not own:
        return None
    earlier = series_rows.figures_of(session, head.predecessor_id)
    return Before(
        series_id=head.predecessor_id,
        words=boundary.words,
        size=size_of(boundary, bridge_between(points_of(earlier), points_of(rows))),
        rows=earlier,
        position=min(own),
    )


def inherited_changes(session: Session, head: SeriesHead) -> tuple[ChangeRow, ...]:
    """The steps of the same workload in other environments: what is open there is open here."""
    others = lineage.siblings(session, series_ids=[head.series_id])[head.series_id] - {head.series_id}
    return tuple(change for other in sorted(others) for change in series_rows.changes_of(session, other))


def chart_earlier(found: Before, points: Sequence[ChartPoint]) -> ChartEarlier:
    """The lighter part of the chart: `points` are those of the earlier series."""
    return ChartEarlier(points=points, position=found.position, words=found.words)


def size_of(boundary: Boundary, bridge: Bridge | None) -> str:
    """Say by how much the level differs on the commits that both series hold, or why that is not known."""
    if boundary.kind is BoundaryKind.VERSION:
        return "What is measured has another meaning, so no commit joins the two."
    if bridge is None:
        return "No commit has been measured on both sides yet, so how much the environment moved it is not known."
    moved = f"{formats.percent(bridge.ratio - 1)} on the same code"
    if bridge.low is None or bridge.high is None:
        return f"{moved}, from one commit measured on both sides: no interval."
    interval = f"{formats.percent(bridge.low - 1)} to {formats.percent(bridge.high - 1)}"
    return f"{moved} ({interval}), from {bridge.commits} commits measured on both sides."


def points_of(rows: Sequence[FigureRow]) -> tuple[Point, ...]:
    """Points of the good figures on the line."""
    return to_points(
        Figure(
            commit_id=row.commit_id,
            position=row.position,
            value_s=row.value_s,
            half_width_s=row.half_width_s,
            run_id=row.run_id,
        )
        for row in rows
        if row.status == "ok" and row.position is not None and row.value_s is not None and row.value_s > 0
    )
