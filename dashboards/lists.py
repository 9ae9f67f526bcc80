"""The list pages: overview, regressions, runs, runners, messages, health."""

from __future__ import annotations

from datetime import timedelta

from flask import abort, render_template, request

from dashboards.alarms import impossible_figures
from dashboards.desk import Desk, TriageAction
from service.contract import RunReason
from service.domain.states import NotificationState, RegressionState, RunState, Standing
from service.store.pages import fleet
from service.store.pages import overview as overview_rows
from service.store.pages import regressions as regression_rows
from service.store.pages import runs as run_rows
from service.store.pages.overview import SeriesState

UNWATCHED_SHOWN = 30
JOBS_PER_PAGE = 100
SILENT_AFTER = timedelta(minutes=5)
PERIODS = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year", "": "all time"}


def _page() -> int:
    return max(0, request.args.get("page", 0, type=int))


def _text(name: str) -> str:
    return request.args.get(name, "").strip().replace("\x00", "")


def _one_of(name: str, allowed: list[str]) -> str:
    value = _text(name)
    return value if value in allowed else ""


def overview(desk: Desk) -> str:
    """Every series with its state; what is open, failing or unguarded stands above."""
    repository, query = _text("repo"), _text("q")
    state = _one_of("state", [state.value for state in SeriesState])
    page = _page()
    with desk.pages.snapshot() as session:
        repositories = overview_rows.repositories(session)
        counts = overview_rows.state_counts(session, repository=repository, query=query)
        rows = overview_rows.series_rows(
            session,
            repository=repository,
            query=query,
            states=[SeriesState(state)] if state else (),
            page=page,
        )
        plain = not (state or query or page)
        open_rows = regression_rows.regression_rows(session, repository=repository) if plain else ()
        unwatched = (
            overview_rows.series_rows(
                session,
                repository=repository,
                states=(SeriesState.FAILING, SeriesState.UNGUARDED),
                page_size=UNWATCHED_SHOWN,
            )
            if plain and counts[SeriesState.FAILING] + counts[SeriesState.UNGUARDED]
            else ()
        )
        impossible = impossible_figures(session, repository=repository) if plain else ()
    found = counts[SeriesState(state)] if state else sum(counts.values())
    return render_template(
        "overview.html",
        rows=rows,
        counts=counts,
        total=sum(counts.values()),
        found=found,
        pages=-(-found // overview_rows.PAGE_SIZE),
        page=page,
        open_rows=open_rows,
        unwatched=unwatched,
        impossible=impossible,
        repositories=repositories,
        repository=repository,
        query=query,
        state=state,
    )


def regressions(desk: Desk) -> str:
    """Regressions and improvements: open ones, or closed, or all, of a period."""
    which = _one_of("show", ["open", "closed", "all"]) or "open"
    days = _one_of("days", list(PERIODS))
    since = desk.now() - timedelta(days=int(days)) if days else None
    states = {
        "open": regression_rows.OPEN,
        "closed": regression_rows.CLOSED,
        "all": tuple(state.value for state in RegressionState),
    }[which]
    page = _page()
    with desk.pages.snapshot() as session:
        rows = regression_rows.regression_rows(session, states=states, repository=_text("repo"), since=since, page=page)
    return render_template(
        "regressions.html",
        rows=rows,
        which=which,
        days=days,
        periods=PERIODS,
        page=page,
        more=len(rows) == regression_rows.PAGE_SIZE,
        actions=TriageAction,
        can_triage=desk.triage is not None,
    )


def runs(desk: Desk) -> str:
    """Runs, newest first."""
    chosen = {
        "state": _one_of("state", [state.value for state in RunState]),
        "reason": _one_of("reason", [reason.value for reason in RunReason]),
        "pool": _text("pool"),
    }
    before_id = request.args.get("before", type=int)
    with desk.pages.snapshot() as session:
        rows = run_rows.run_rows(session, before_id=before_id, **chosen)
    return render_template(
        "runs.html",
        rows=rows,
        chosen=chosen,
        before_id=before_id,
        states=list(RunState),
        reasons=list(RunReason),
        more=len(rows) == run_rows.PAGE_SIZE,
    )


def runners(desk: Desk) -> str:
    """The fleet, and what waits for it."""
    with desk.pages.snapshot() as session:
        rows = fleet.runner_rows(session)
        queue = fleet.queue_by_pool(session)
    return render_template(
        "runners.html", rows=rows, queue=queue, silent_after=SILENT_AFTER, can_place=desk.fleet is not None
    )


def runner_jobs(desk: Desk, runner_id: int) -> str:
    """What the jobs of one runner showed of it: its canary history."""
    before_id = request.args.get("before", type=int)
    with desk.pages.snapshot() as session:
        runner = next((row for row in fleet.runner_rows(session) if row.runner_id == runner_id), None)
        if runner is None:
            abort(404, f"There is no runner {runner_id}.")
        rows = fleet.job_rows(session, runner_id=runner_id, before_id=before_id, limit=JOBS_PER_PAGE)
    return render_template(
        "runner_jobs.html", runner=runner, rows=rows, before_id=before_id, more=len(rows) == JOBS_PER_PAGE
    )


def messages(desk: Desk) -> str:
    """The outbox: what was told to whom, what waits, what failed and why."""
    state = _one_of("state", [state.value for state in NotificationState])
    before_id = request.args.get("before", type=int)
    with desk.pages.snapshot() as session:
        rows = regression_rows.notifications(session, state=state, before_id=before_id)
        channels = regression_rows.channels(session)
    return render_template(
        "messages.html",
        rows=rows,
        channels=channels,
        can_post=desk.post is not None,
        catcher_url=desk.catcher_url,
        state=state,
        states=list(NotificationState),
        before_id=before_id,
        more=len(rows) == regression_rows.PAGE_SIZE,
    )


def health(desk: Desk) -> str:
    """What waits, what is late, what failed: each with the sentence that says what to do."""
    moment = desk.now()
    with desk.pages.snapshot() as session:
        row = fleet.health_row(session, moment)
        rows = fleet.runner_rows(session)
        queue = fleet.queue_by_pool(session)
    pools_served = {
        runner.pool
        for runner in rows
        if runner.heartbeat_at
        and moment - runner.heartbeat_at < SILENT_AFTER
        and runner.standing != Standing.QUARANTINED
    }
    return render_template("health.html", row=row, runners=rows, queue=queue, pools_served=pools_served)
