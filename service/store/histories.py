"""Whole histories: the series of a repository and where a span of time begins on its first-parent line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.store.tables import Benchmark, GitCommit, Measurement, Series, Workload


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """A series and the workload it follows."""

    series_id: int
    workload_key: str


def series_of(session: Session, *, repository_id: int) -> Sequence[StoredSeries]:
    """Return the series of a repository, vendor controls left out, in order of workload."""
    rows = session.execute(
        select(Series.id, Workload.key)
        .join(Workload, Workload.id == Series.workload_id)
        .join(Benchmark, Benchmark.id == Workload.benchmark_id)
        .where(Series.repository_id == repository_id, Benchmark.control.is_(False))
        .order_by(Workload.key, Series.id)
    )
    return [StoredSeries(series_id=series_id, workload_key=key) for series_id, key in rows]


def first_position_since(session: Session, *, repository_id: int, since: datetime | None) -> int:
    """Return the position of the first commit measured since a moment; 0 for the whole history."""
    if since is None:
        return 0
    position = session.scalar(
        select(func.min(GitCommit.position))
        .join(Measurement, Measurement.commit_id == GitCommit.id)
        .where(GitCommit.repository_id == repository_id, Measurement.measured_at >= since)
    )
    return position or 0
