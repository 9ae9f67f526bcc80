"""The dashboard's place in this app: its blueprint, given the store's pages and the use cases that people may call."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import astuple, dataclass

from flask import Blueprint, Flask

from dashboards.desk import (
    BisectionAction,
    PolicyDifference,
    PolicyPreview,
    PolicyRow,
    PolicyWish,
    RefusedError,
    RunnerAction,
    TriageOutcome,
    TriageRequest,
)
from dashboards.views import create_blueprint
from service.domain.message import DeliveryError
from service.domain.states import RegressionState, Standing
from service.settings import Settings
from service.store import audit, repositories
from service.store.pages import Pages
from service.usecases import alert, standing
from service.usecases.aftermath import Aftermath
from service.usecases.policy import DetectionPolicy, PolicyError, with_overrides
from service.usecases.standing import StandingRefusedError
from service.usecases.triage import Decision, decide
from service.web import auth
from service.wiring import DELIVER_TASK, Services, follow_up, senders

COOKIE_LABEL = b"kernelwatch session cookie"


def dashboard(parts: Services) -> Blueprint:
    """The blueprint; without an admin token nobody can sign in and the site is read-only."""

    def sign_in(token: str) -> str | None:
        with parts.sessions() as session:
            return auth.name_of_token(session, token=token, settings=parts.settings, now=parts.clock())

    def triage(request: TriageRequest) -> TriageOutcome:
        decision = Decision(
            state=RegressionState(request.action.value),
            actor=request.actor,
            assignee=request.assignee,
            note=request.reason,
            expires_at=request.expires_at,
        )
        with parts.sessions.begin() as session:
            result = decide(session, ids=request.regression_ids, decision=decision, now=parts.clock())
        follow_up(parts, result.aftermath)
        parts.bell.later(DELIVER_TASK, {})
        return TriageOutcome(moved=len(result.moved), refused=result.refused)

    def steer_search(*, regression_id: int, action: BisectionAction, actor: str, budget_s: float | None = None) -> None:
        from service.usecases.steer import Steering, SteeringRefusedError, steer  # numpy and scipy, seldom needed

        try:
            with parts.sessions.begin() as session:
                aftermath: Aftermath = steer(
                    session,
                    regression_id=regression_id,
                    steering=Steering(action.value),
                    actor=actor,
                    now=parts.clock(),
                    budget_s=budget_s,
                )
        except SteeringRefusedError as error:
            raise RefusedError(str(error)) from error
        follow_up(parts, aftermath)

    def place_runner(*, runner_id: int, action: RunnerAction, reason: str, actor: str) -> None:
        wanted = Standing.QUARANTINED if action is RunnerAction.QUARANTINE else Standing.TRUSTED
        try:
            with parts.sessions.begin() as session:
                aftermath = standing.decide(
                    session, runner_id=runner_id, wanted=wanted, reason=reason, actor=actor, now=parts.clock()
                )
        except (LookupError, StandingRefusedError) as error:
            raise RefusedError(f"{error}.") from error
        follow_up(parts, aftermath)

    return create_blueprint(
        Pages(parts.engine),
        now=parts.clock,
        sign_in=sign_in,
        triage=triage,
        steer=steer_search,
        post=OutboxDoor(parts),
        fleet=place_runner,
        policies=PolicyDoor(parts),
        catcher_url=parts.settings.catcher_url,
    )


@dataclass(frozen=True, slots=True)
class OutboxDoor:
    """What a person may ask of the outbox on the messages page."""

    parts: Services

    def retry(self, *, notification_id: int, actor: str) -> None:
        """Put a failed message back into the outbox, then ask for a delivery."""
        with self.parts.sessions.begin() as session:
            again = alert.retry(session, notification_id=notification_id, actor=actor, now=self.parts.clock())
        if not again:
            raise RefusedError("Only a message that has failed can be tried again.")
        self.parts.bell.later(DELIVER_TASK, {})

    def test(self, *, channel_id: int, actor: str) -> str:
        """Send a made-up message through a channel."""
        try:
            with self.parts.sessions.begin() as session:
                audit.record(session, actor=actor, action="test", subject=("channel", channel_id))
                return alert.try_channel(
                    session,
                    channel_id=channel_id,
                    senders=senders(self.parts.settings),
                    public_url=self.parts.public_url,
                )
        except (DeliveryError, LookupError) as error:
            raise RefusedError(f"It does not work: {error}") from error


@dataclass(frozen=True, slots=True)
class PolicyDoor:
    """What counts as a change, for the policy page. The detector is loaded by the first preview: few sites need it."""

    parts: Services

    def in_force(self) -> list[PolicyRow]:
        """Every repository's policy."""
        with self.parts.sessions() as session:
            return [
                _row(repository.name, with_overrides(self._default, repository.settings))
                for repository in repositories.all_of_them(session)
            ]

    def preview(self, wish: PolicyWish) -> PolicyPreview:
        """Run the stored history through the policy in shadow."""
        from service.usecases.adopt import PREVIEW_DAYS, Wish, try_out

        try:
            with self.parts.sessions() as session:
                trial = try_out(session, Wish(*astuple(wish)), default=self._default, now=self.parts.clock())
        except PolicyError as error:
            raise RefusedError(str(error)) from error
        return PolicyPreview(
            after=_row(wish.repository, trial.after),
            days=PREVIEW_DAYS,
            series=trial.outcome.series,
            points=trial.outcome.points,
            differences=tuple(
                PolicyDifference(one.kind, one.workload, one.effect, *trial.names.get(one.position, ("", "")))
                for one in trial.outcome.differences
            ),
        )

    def save(self, wish: PolicyWish, *, actor: str) -> None:
        """Put it into force, with a line in the log."""
        from service.usecases.adopt import Wish, adopt

        try:
            with self.parts.sessions.begin() as session:
                adopt(session, Wish(*astuple(wish)), default=self._default, actor=actor)
        except PolicyError as error:
            raise RefusedError(str(error)) from error

    @property
    def _default(self) -> DetectionPolicy:
        return DetectionPolicy(min_effect=self.parts.settings.min_effect)


def _row(repository: str, policy: DetectionPolicy) -> PolicyRow:
    return PolicyRow(repository, policy.min_effect, policy.confidence, policy.workloads)


def set_cookies(app: Flask, settings: Settings) -> None:
    """Sign session cookies with a key derived from the admin token: changing the token ends every session."""
    if settings.admin_token is None:
        return
    token = settings.admin_token.get_secret_value().encode()
    app.secret_key = hmac.new(token, COOKIE_LABEL, hashlib.sha256).digest()
    app.config.update(
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=(settings.public_url or "").startswith("https://"),
    )
