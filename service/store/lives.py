"""What the life of a regression asks of the store: closed ones that may come back, what a fix is measured against."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus
from service.domain.states import Direction, RegressionState
from service.store.tables import ChangePoint, GitCommit, Measurement, Regression, Run, Series


def closed_with_series(session: Session, *, series_ids: Collection[int]) -> Sequence[Regression]:
    """Return the regressions called fixed that hold a change point of one of these series, the newest first."""
    return (
        session.scalars(
            select(Regression)
            .join(ChangePoint, ChangePoint.regression_id == Regression.id)
            .where(
                ChangePoint.series_id.in_(series_ids),
                Regression.state == RegressionState.FIXED,
                Regression.direction == Direction.REGRESSION,
            )
            .order_by(Regression.id.desc())
        )
        .unique()
        .all()
    )


def newest_measured(session: Session, *, series_ids: Collection[int]) -> GitCommit | None:
    """Return the newest first-parent commit that has a good figure in one of these series."""
    return session.scalars(
        select(GitCommit)
        .join(Measurement, Measurement.commit_id == GitCommit.id)
        .join(Run, Run.id == Measurement.run_id)
        .where(
            Measurement.series_id.in_(series_ids),
            Measurement.status == MeasurementStatus.OK,
            Run.retracted_at.is_(None),
            GitCommit.position.is_not(None),
        )
        .order_by(GitCommit.position.desc())
        .limit(1)
    ).first()


def expired(session: Session, *, now: datetime) -> Sequence[Regression]:
    """Return the regressions whose acceptance has run out, locked for this transaction."""
    return session.scalars(
        select(Regression)
        .where(Regression.state == RegressionState.EXPECTED, Regression.expires_at <= now)
        .order_by(Regression.id)
        .with_for_update(skip_locked=True)
    ).all()


def next_part(session: Session, *, regression: Regression) -> int:
    """Return a free part number for one more regression of the same range and direction."""
    last = session.scalar(
        select(func.max(Regression.part)).where(
            Regression.repository_id == regression.repository_id,
            Regression.direction == regression.direction,
            Regression.good_commit_id == regression.good_commit_id,
            Regression.bad_commit_id == regression.bad_commit_id,
        )
    )
    return (last or 0) + 1


def changes_resting_on(session: Session, *, run: Run) -> Sequence[ChangePoint]:
    """Return the change points at the commits of a run, in the series it measured."""
    series_ids = select(Measurement.series_id).where(Measurement.run_id == run.id)
    commit_ids = select(Measurement.commit_id).where(Measurement.run_id == run.id)
    return session.scalars(
        select(ChangePoint)
        .join(Series, Series.id == ChangePoint.series_id)
        .where(
            ChangePoint.series_id.in_(series_ids),
            ChangePoint.commit_id.in_(commit_ids) | ChangePoint.previous_commit_id.in_(commit_ids),
            ChangePoint.withdrawn_at.is_(None) | ChangePoint.restarts_baseline,
        )
        .order_by(ChangePoint.id)
    ).all()


def has_figures(session: Session, *, series_id: int, commit_id: int) -> bool:
    """Whether a commit still has a good figure in a series."""
    return (
        session.scalars(
            select(Measurement.id)
            .join(Run, Run.id == Measurement.run_id)
            .where(
                Measurement.series_id == series_id,
                Measurement.commit_id == commit_id,
                Measurement.status == MeasurementStatus.OK,
                Run.retracted_at.is_(None),
            )
            .limit(1)
        ).first()
        is not None
    )
