"""The fleet's API: runners with their standing, A/A share and canary history; quarantine and release by hand."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from flask import Blueprint, Response
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from service.domain.states import Standing
from service.store.pages import fleet
from service.store.tables import Runner
from service.usecases import standing
from service.usecases.standing import StandingRefusedError
from service.web import auth
from service.web.errors import ProblemError
from service.web.parts import as_json, parse, services
from service.web.read_api import MAX_BIGINT, wanted_page
from service.wiring import follow_up

blueprint = Blueprint("fleet_api", __name__, url_prefix="/api/v1")


class Decision(BaseModel):
    """Where a person puts a runner, and why."""

    model_config = ConfigDict(extra="forbid")
    standing: Standing
    reason: Annotated[str, Field(min_length=1, max_length=2_000)]


_DECISION = TypeAdapter(Decision)


@blueprint.get("/runners")
def runner_list() -> Response:
    """All runners: standing, reason, since when, and the share of A/A comparisons that alarmed."""
    with services().sessions() as session:
        rows = fleet.runner_rows(session)
    return as_json({"items": [_runner(row) for row in rows], "next": None})


@blueprint.get("/runners/<int:runner_id>/jobs")
def job_list(runner_id: int) -> Response:
    """What a runner's jobs showed of it, newest first; the cursor is an id."""
    page = wanted_page()
    with services().sessions() as session:
        if runner_id > MAX_BIGINT or session.get(Runner, runner_id) is None:
            raise ProblemError(404, "Not Found", "There is no such runner.")
        rows = fleet.job_rows(session, runner_id=runner_id, before_id=page.cursor, limit=page.limit)
    items = [{name: _plain(value) for name, value in asdict(row).items()} for row in rows]
    return as_json({"items": items, "next": rows[-1].id if len(rows) == page.limit else None})


@blueprint.post("/runners/<int:runner_id>/standing")
def decide(runner_id: int) -> Response:
    """Quarantine a runner, or release it."""
    parts = services()
    now = parts.clock()
    with parts.sessions.begin() as session:
        actor = auth.require_writer(session, settings=parts.settings, now=now)
        wanted = parse(_DECISION)
        if runner_id > MAX_BIGINT:
            raise ProblemError(404, "Not Found", "There is no such runner.")
        try:
            aftermath = standing.decide(
                session, runner_id=runner_id, wanted=wanted.standing, reason=wanted.reason, actor=actor, now=now
            )
        except LookupError as error:
            raise ProblemError(404, "Not Found", "There is no such runner.") from error
        except StandingRefusedError as error:
            raise ProblemError(409, "Conflict", f"{error}.") from error
    follow_up(parts, aftermath)
    return as_json({"runner": runner_id, "standing": wanted.standing.value})


def _runner(row: fleet.RunnerRow) -> dict[str, Any]:
    shown = {name: _plain(value) for name, value in asdict(row).items() if name not in _ON_THE_PAGE_ONLY}
    return {**shown, "aa": None if row.aa is None else asdict(row.aa)}


_ON_THE_PAGE_ONLY = frozenset({"canaries_s", "canary_verdicts", "aa_alarmed"})


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
