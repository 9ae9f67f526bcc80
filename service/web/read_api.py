"""The read API: repositories, series, points, runs and regressions as JSON, paged by key.

Lists answer `{"items": [...], "next": cursor or null}`; pass `next` back as `?after=`. Reading needs no token.
Ordering a run by hand is the one write here, and needs one.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from flask import Blueprint, Response, request
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from sqlalchemy import RowMapping

from service.contract import RunReason
from service.store import audit, code_changes, commits, queries, repositories
from service.store.queries import Page
from service.usecases import dispatch
from service.web import auth
from service.web.errors import ProblemError
from service.web.parts import as_json, parse, services

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_BIGINT = 2**63 - 1
MANUAL_PRIORITY = 5

blueprint = Blueprint("read_api", __name__, url_prefix="/api/v1")


class ManualRun(BaseModel):
    """A run ordered by a person."""

    model_config = ConfigDict(extra="forbid")
    repository: Annotated[str, Field(min_length=1, max_length=300)]
    sha: Annotated[str, Field(pattern=r"^[0-9a-f]{40,64}$")]
    pool: Annotated[str, Field(min_length=1, max_length=100)]
    priority: Annotated[int, Field(ge=-100, le=100)] = MANUAL_PRIORITY


_MANUAL = TypeAdapter(ManualRun)


@blueprint.get("/repositories")
def repository_list() -> Response:
    """All repositories."""
    page = wanted_page()
    with services().sessions() as session:
        return _listing(queries.repositories(session, page), page)


@blueprint.get("/series")
def series_list() -> Response:
    """Series; filter by repository, pool, family, workload, metric."""
    page = wanted_page()
    filters = _filters("repository", "pool", "family", "workload", "metric")
    with services().sessions() as session:
        return _listing(queries.series_list(session, page, filters=filters), page)


@blueprint.get("/series/<int:series_id>")
def series_one(series_id: int) -> Response:
    """One series."""
    with services().sessions() as session:
        return as_json(_plain(_found(queries.series_one(session, series_id=_key(series_id)), "series")))


@blueprint.get("/series/<int:series_id>/points")
def series_points(series_id: int) -> Response:
    """The points of a series in commit order; the cursor is a position."""
    page = wanted_page()
    with services().sessions() as session:
        _found(queries.series_one(session, series_id=_key(series_id)), "series")
        rows = queries.series_points(session, series_id=series_id, page=page)
    return _listing(rows, page, key="position")


@blueprint.get("/runs")
def run_list() -> Response:
    """Runs, newest first; filter by repository, pool, state, sha."""
    page = wanted_page()
    with services().sessions() as session:
        rows = queries.run_list(session, page, filters=_filters("repository", "pool", "state", "sha"))
    return _listing(rows, page)


@blueprint.post("/runs")
def order_run() -> Response:
    """Order a commit to be measured (again)."""
    parts = services()
    now = parts.clock()
    with parts.sessions.begin() as session:
        actor = auth.require_writer(session, settings=parts.settings, now=now)
        wanted = parse(_MANUAL)
        repository = repositories.by_name(session, name=wanted.repository)
        commit = repository and commits.by_sha(session, repository_id=repository.id, sha=wanted.sha)
        if repository is None or commit is None:
            raise ProblemError(404, "Not Found", "This repository has no such commit (yet).")
        if wanted.pool not in repository.pools:
            raise ProblemError(404, "Not Found", f"{repository.name} is not measured on a pool {wanted.pool}.")
        run = dispatch.order_run(
            session,
            repository_id=repository.id,
            commit_id=commit.id,
            pool=wanted.pool,
            reason=RunReason.MANUAL,
            priority=wanted.priority,
            dedupe_key=f"manual:{secrets.token_hex(8)}",
        )
        audit.record(session, actor=actor, action="order", subject=("run", run.id), after={"sha": wanted.sha})
    parts.bell.ring(run.pool, run.id)
    return as_json({"run": run.id}, status=201)


@blueprint.get("/runs/<int:run_id>")
def run_one(run_id: int) -> Response:
    """One run with what it measured."""
    with services().sessions() as session:
        found = _found(queries.run_one(session, run_id=_key(run_id)), "run")
        measured = queries.run_measurements(session, run_id=run_id)
    return as_json({**_plain(found), "measurements": [_plain(row) for row in measured]})


@blueprint.get("/regressions")
def regression_list() -> Response:
    """Regressions and improvements, newest first; filter by repository, state, direction."""
    page = wanted_page()
    with services().sessions() as session:
        rows = queries.regression_list(session, page, filters=_filters("repository", "state", "direction"))
    return _listing(rows, page)


@blueprint.get("/regressions/<int:regression_id>")
def regression_one(regression_id: int) -> Response:
    """One regression with its change points."""
    with services().sessions() as session:
        found = _found(queries.regression_one(session, regression_id=_key(regression_id)), "regression")
        points = queries.regression_change_points(session, regression_id=regression_id)
    return as_json({**_plain(found), "change_points": [_plain(row) for row in points]})


@blueprint.get("/commits/<sha>/alerts")
def commit_alerts(sha: str) -> Response:
    """All regressions that lead to one commit."""
    if "\x00" in sha:
        raise ProblemError(404, "Not Found", "There is no such commit.")
    with services().sessions() as session:
        rows = queries.commit_alerts(session, sha=sha)
    return as_json({"items": [_plain(row) for row in rows], "next": None})


@blueprint.get("/commits/<sha>/static")
def commit_static(sha: str) -> Response:
    """What a commit changed in machine code against the commit before it, and why that is not known in full."""
    if "\x00" in sha:
        raise ProblemError(404, "Not Found", "There is no such commit.")
    with services().sessions() as session:
        seen = queries.commits_by_sha(session, sha=sha)
        if not seen:
            raise ProblemError(404, "Not Found", "There is no such commit.")
        items = [
            {**asdict(found), "repository": row["repository"], "code_changed": found.code_changed, "words": found.words}
            for row in seen
            for found in code_changes.of_commit(session, commit_id=row["commit_id"])
        ]
        missing = queries.static_missing(session, commit_ids=[row["commit_id"] for row in seen])
    return as_json({"items": items, "why_missing": missing, "next": None})


def wanted_page() -> Page:
    """Return the page that the query asks for."""
    return Page(
        limit=_number("limit", low=1, high=MAX_LIMIT) or DEFAULT_LIMIT,
        cursor=_number("after", low=0, high=MAX_BIGINT),
    )


def _number(name: str, *, low: int, high: int) -> int | None:
    text = request.args.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise ProblemError(400, "Bad Request", f"`{name}` must be a whole number from {low} to {high}.")
    return int(text)


def _filters(*names: str) -> dict[str, str]:
    given = {name: request.args[name] for name in names if name in request.args}
    if any("\x00" in value for value in given.values()):
        raise ProblemError(400, "Bad Request", "A filter must not contain NUL.")
    return given


def _key(number: int) -> int:
    if number > MAX_BIGINT:
        raise ProblemError(404, "Not Found", "There is no such row.")
    return number


def _found(row: RowMapping | None, what: str) -> RowMapping:
    if row is None:
        raise ProblemError(404, "Not Found", f"There is no such {what}.")
    return row


def _listing(rows: Sequence[RowMapping], page: Page, *, key: str = "id") -> Response:
    cursor = rows[-1][key] if len(rows) == page.limit else None
    return as_json({"items": [_plain(row) for row in rows], "next": cursor})


def _plain(row: RowMapping) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
