"""Reading what a message says: one regression with its range, culprit, series and cost."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.contract import MeasurementStatus
from service.domain.message import Chart, ChartPoint, CommitLine, Digest, Message, News, SeriesLine
from service.domain.notice import Notice
from service.domain.severity import rate
from service.domain.states import BisectionState, Direction, NotificationEvent
from service.store.impact import reach_of
from service.store.notices import read_notice
from service.store.tables import (
    Bisection,
    ChangePoint,
    GitCommit,
    Measurement,
    Notification,
    Regression,
    Repository,
    Run,
    Series,
    Workload,
)

CHART_BEFORE, CHART_AFTER, CHART_POINTS = 40, 20, 120  # commits around the step, and dots that stay readable
LISTED = 20  # series named in a message; the page has them all


def read_message(session: Session, *, notification: Notification, public_url: str) -> Message:
    """Gather everything that the message of one outbox row says, in one snapshot."""
    regression = session.get_one(Regression, notification.regression_id)
    repository = session.get_one(Repository, regression.repository_id)
    good = session.get_one(GitCommit, regression.good_commit_id)
    bad = session.get_one(GitCommit, regression.bad_commit_id)
    culprit = session.get_one(GitCommit, regression.culprit_commit_id) if regression.culprit_commit_id else None
    search = session.scalars(
        select(Bisection).where(Bisection.regression_id == regression.id).order_by(Bisection.generation.desc())
    ).first()
    outcome = (search.outcome or {}) if search is not None and search.state == BisectionState.DONE else {}
    reach = reach_of(session, regression_id=regression.id, repository_id=repository.id)
    return Message(
        key=f"kernelwatch-{repository.id}-{notification.id}",
        event=NotificationEvent(notification.event),
        regression_id=regression.id,
        repository=repository.name,
        direction=Direction(regression.direction),
        severity=regression.severity,
        effect=regression.effect,
        effect_low=regression.effect_low,
        effect_high=regression.effect_high,
        good=_line(good),
        bad=_line(bad),
        candidates=max((bad.position or 0) - (good.position or 0), 1),
        culprit=_line(culprit) if culprit is not None else None,
        probability=outcome.get("probability"),
        series=_series(session, regression_id=regression.id),
        series_total=reach.of_series,
        device_s=search.spent_s if search is not None else None,
        note=regression.note,
        url=f"{public_url.rstrip('/')}/regressions/{regression.id}",
        assignee=regression.assignee,
        owners=tuple((regression.origin or {}).get("owners", ())),
        severity_reason=rate(regression.effect, reach).reason,
        steps=tuple(str(step) for step in sorted(reach.steps, key=lambda step: -abs(step.effect))[:3]),
        chart=_chart(session, regression=regression),
    )


def read_news(session: Session, *, ids: Collection[int], public_url: str) -> News:
    """Gather what one delivery says: a message, or the digest of several with the last word on each regression."""
    rows = session.scalars(select(Notification).where(Notification.id.in_(ids)).order_by(Notification.id)).all()
    last = {(row.regression_id, row.subject): row for row in rows}
    news = [_read(session, notification=row, public_url=public_url) for row in last.values()]
    if len(news) == 1:
        return news[0]
    return Digest(
        key=f"kernelwatch-digest-{rows[0].channel_id}-{rows[0].id}",
        repository=news[0].repository,
        messages=tuple(one for one in news if isinstance(one, Message)),
        notices=tuple(one for one in news if isinstance(one, Notice)),
        url=f"{public_url.rstrip('/')}/regressions",
    )


def _read(session: Session, *, notification: Notification, public_url: str) -> Message | Notice:
    read = read_notice if notification.regression_id is None else read_message
    return read(session, notification=notification, public_url=public_url)


def _line(commit: GitCommit) -> CommitLine:
    return CommitLine(sha=commit.sha, subject=commit.subject, author=commit.author, email=commit.author_email)


def _series(session: Session, *, regression_id: int) -> tuple[SeriesLine, ...]:
    rows = session.execute(
        select(Workload.key, ChangePoint.effect, ChangePoint.effect_low, ChangePoint.effect_high, ChangePoint.before_s)
        .join(Series, Series.id == ChangePoint.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .where(ChangePoint.regression_id == regression_id)
        .order_by(func.abs(ChangePoint.z).desc(), ChangePoint.id)
        .limit(LISTED)
    )
    return tuple(
        SeriesLine(workload=key, effect=effect, effect_low=low, effect_high=high, before_s=before_s)
        for key, effect, low, high, before_s in rows
    )


def _chart(session: Session, *, regression: Regression) -> Chart | None:
    """The clearest series around its step, one point per measurement; None where one side has no point."""
    lead = session.execute(
        select(ChangePoint, Workload.key, GitCommit.position)
        .join(Series, Series.id == ChangePoint.series_id)
        .join(Workload, Workload.id == Series.workload_id)
        .join(GitCommit, GitCommit.id == ChangePoint.commit_id)
        .where(ChangePoint.regression_id == regression.id, ChangePoint.withdrawn_at.is_(None), Series.unit == "s")
        .order_by(func.abs(ChangePoint.z).desc(), ChangePoint.id)
        .limit(1)
    ).first()
    if lead is None:
        return None
    change, workload, position = lead
    if position is None:  # a force push took the commit off the line
        return None
    rows = session.execute(
        select(GitCommit.sha, GitCommit.position, Measurement.value_s, Measurement.half_width_s)
        .join(GitCommit, GitCommit.id == Measurement.commit_id)
        .join(Run, Run.id == Measurement.run_id)
        .where(
            Measurement.series_id == change.series_id,
            Measurement.status == MeasurementStatus.OK,
            Measurement.value_s > 0,
            Run.retracted_at.is_(None),
            GitCommit.position.between(position - CHART_BEFORE, position + CHART_AFTER),
        )
        .order_by(GitCommit.position, Measurement.id)
        .limit(CHART_POINTS)
    ).all()
    step = sum(row.position < position for row in rows)
    if not 0 < step < len(rows):
        return None
    return Chart(
        workload=workload,
        direction=Direction(change.direction),
        effect=change.effect,
        points=tuple(ChartPoint(row.sha, row.value_s, row.half_width_s or 0.0) for row in rows),
        step=step,
    )
