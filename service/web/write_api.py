"""The write API: what people and agents decide. Every route needs a token of scope `write`; every deed is audited."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from flask import Blueprint, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from service.domain.states import RegressionState
from service.usecases.policy import DetectionPolicy
from service.usecases.triage import Decision, decide
from service.web import auth
from service.web.errors import ProblemError
from service.web.parts import as_json, parse, services
from service.wiring import Services, follow_up

MAX_BULK = 1_000

blueprint = Blueprint("write_api", __name__, url_prefix="/api/v1")

Words = Annotated[str, Field(min_length=1, max_length=2_000)]


class Triage(BaseModel):
    """One decision about one or many regressions."""

    model_config = ConfigDict(extra="forbid")
    ids: Annotated[list[int], Field(min_length=1, max_length=MAX_BULK)]
    state: RegressionState
    note: Words | None = None
    assignee: Words | None = None
    expires_at: AwareDatetime | None = None


class Steer(BaseModel):
    """What to do with the search of a regression; a budget in device-seconds goes with resume and rerun."""

    model_config = ConfigDict(extra="forbid")
    action: Annotated[str, Field(pattern="^(pause|resume|cancel|rerun)$")]
    budget_s: float | None = None


class Retraction(BaseModel):
    """Why a run's measurements are invalid."""

    model_config = ConfigDict(extra="forbid")
    reason: Words


_TRIAGE, _STEER, _RETRACTION = TypeAdapter(Triage), TypeAdapter(Steer), TypeAdapter(Retraction)


@blueprint.post("/regressions/triage")
def triage() -> Response:
    """Move regressions to a state; those that may not move say why and change nothing."""
    parts, now = _parts_and_now()
    with parts.sessions.begin() as session:
        actor = auth.require_writer(session, settings=parts.settings, now=now)
        wanted = parse(_TRIAGE, limit_bytes=100_000)
        decision = Decision(
            state=wanted.state,
            actor=actor,
            assignee=wanted.assignee,
            note=wanted.note,
            expires_at=wanted.expires_at,
        )
        try:
            result = decide(session, ids=wanted.ids, decision=decision, now=now)
        except ValueError as error:
            raise ProblemError(422, "Unprocessable Content", f"{error}.") from error
    follow_up(parts, result.aftermath)
    refused = {str(regression_id): why for regression_id, why in result.refused.items()}
    return as_json({"moved": list(result.moved), "refused": refused})


@blueprint.post("/regressions/<int:regression_id>/bisection")
def steer_bisection(regression_id: int) -> Response:
    """Pause, resume, cancel or repeat the search of a regression."""
    from service.usecases.steer import Steering, SteeringRefusedError, steer  # numpy and scipy, seldom needed

    parts, now = _parts_and_now()
    with parts.sessions.begin() as session:
        actor = auth.require_writer(session, settings=parts.settings, now=now)
        wanted = parse(_STEER)
        try:
            aftermath = steer(
                session,
                regression_id=regression_id,
                steering=Steering(wanted.action),
                actor=actor,
                now=now,
                budget_s=wanted.budget_s,
            )
        except SteeringRefusedError as error:
            raise ProblemError(409, "Conflict", f"{error}.") from error
    follow_up(parts, aftermath)
    return as_json({"regression": regression_id, "action": wanted.action})


@blueprint.post("/runs/<int:run_id>/retract")
def retract_run(run_id: int) -> Response:
    """Take a run's measurements out of every series, and what rested on them alone."""
    from service.store import runs
    from service.usecases import detect  # numpy and scipy, seldom needed

    parts, now = _parts_and_now()
    with parts.sessions.begin() as session:
        actor = auth.require_writer(session, settings=parts.settings, now=now)
        wanted = parse(_RETRACTION)
        if runs.lock(session, run_id=run_id) is None:
            raise ProblemError(404, "Not Found", f"There is no run {run_id}.")
        aftermath = detect.retract(
            session,
            run_id=run_id,
            reason=wanted.reason,
            actor=actor,
            now=now,
            policy=DetectionPolicy(min_effect=parts.settings.min_effect),
        )
    follow_up(parts, aftermath)
    return as_json({"run": run_id, "retracted": True})


def _parts_and_now() -> tuple[Services, datetime]:
    parts = services()
    return parts, parts.clock()
