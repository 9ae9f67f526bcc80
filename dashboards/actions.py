"""Signing in, and the forms that change something: each needs a person, a CSRF token, and a use case behind it."""

from __future__ import annotations

import hmac
import secrets
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from flask import abort, current_app, flash, redirect, render_template, request, session, url_for
from werkzeug.wrappers import Response

from dashboards import formats
from dashboards.desk import BisectionAction, Desk, RefusedError, RunnerAction, TriageAction, TriageRequest

CSRF_KEY, PERSON_KEY = "csrf", "person"
MAX_BULK = 1_000
DEFAULT_EXPIRY_DAYS, MAX_EXPIRY_DAYS = 30, 365
MAX_REFUSALS_SHOWN = 5


class ForbiddenError(Exception):
    """The request may not do this; the message says what is missing."""


def person() -> str | None:
    """Who is signed in, if the app can keep sessions at all."""
    return str(session[PERSON_KEY]) if current_app.secret_key and PERSON_KEY in session else None


def may_sign_in(desk: Desk) -> bool:
    """Whether this site knows tokens and can keep a session."""
    return desk.sign_in is not None and bool(current_app.secret_key)


def csrf_token() -> str:
    """The session's token for forms; made on first use."""
    if not current_app.secret_key:
        return ""
    if CSRF_KEY not in session:
        session[CSRF_KEY] = secrets.token_urlsafe(32)
    return str(session[CSRF_KEY])


def check_csrf() -> None:
    """Refuse a form that this site did not give to this browser."""
    expected = session.get(CSRF_KEY) if current_app.secret_key else None
    given = request.form.get("csrf", "")
    if not expected or not hmac.compare_digest(str(expected).encode(), given.encode()):
        raise ForbiddenError("This form is too old or came from another site. Go back, reload the page, try again.")


def signed_in() -> str:
    """Who sends this form; refuses one that nobody signed in has sent from this site."""
    check_csrf()
    who = person()
    if who is None:
        raise ForbiddenError("Sign in with a token of scope write to do this.")
    return who


def local_path(target: str | None) -> str:
    """A path of this site to go on to, or the overview: never another host."""
    parts = urlsplit(target or "")
    safe = target and not parts.scheme and not parts.netloc and target.startswith("/") and "\\" not in target
    return target if safe and target and not target.startswith("//") else url_for(".overview")


def sign_in_form(desk: Desk) -> str:
    """The page that asks for a token."""
    if not may_sign_in(desk):
        abort(404, "This site is read-only: nobody can sign in.")
    return render_template("sign_in.html", next=local_path(request.args.get("next")), failed=False)


def sign_in(desk: Desk) -> Response | tuple[str, int]:
    """Trade a token for a session."""
    check_csrf()
    who = desk.sign_in(request.form.get("token", "").strip()) if desk.sign_in else None
    target = local_path(request.form.get("next"))
    if who is None:
        return render_template("sign_in.html", next=target, failed=True), 403
    session.clear()
    session[PERSON_KEY] = who
    return redirect(target, code=303)


def sign_out(desk: Desk) -> Response:  # noqa: ARG001
    """End the session."""
    check_csrf()
    session.clear()
    return redirect(url_for(".overview"), code=303)


def triage(desk: Desk) -> Response:
    """Acknowledge, expect, reject or close one or many regressions."""
    actor = signed_in()
    if desk.triage is None:
        raise ForbiddenError("This site is read-only.")
    target = local_path(request.form.get("next"))
    try:
        wanted = _triage_request(actor, desk.now())
        outcome = desk.triage(wanted)
    except (RefusedError, ValueError) as refusal:
        flash(str(refusal), "refused")
        return redirect(target, code=303)
    if outcome.moved:
        flash(f"{formats.plural(outcome.moved, 'regression')}: {formats.sentence(wanted.action)}.", "done")
    for regression_id, why in list(outcome.refused.items())[:MAX_REFUSALS_SHOWN]:
        flash(f"#{regression_id} stays as it is: {why}.", "refused")
    return redirect(target, code=303)


def _triage_request(actor: str, now: datetime) -> TriageRequest:
    """Read the form; raises ValueError with a sentence for what is missing. Who expects a change owns it by default."""
    ids = tuple(dict.fromkeys(request.form.getlist("regression_id", type=int)))
    if not ids:
        raise ValueError("Choose at least one regression.")
    if len(ids) > MAX_BULK:
        raise ValueError(f"At most {MAX_BULK} regressions at once.")
    try:
        action = TriageAction(request.form.get("action", ""))
    except ValueError:
        raise ValueError("Choose what to do: acknowledge, expected, not real or fixed.") from None
    reason = request.form.get("reason", "").strip() or None
    if reason is None and action in (TriageAction.EXPECTED, TriageAction.NOT_REAL):
        raise ValueError("Say why: the reason is kept in the log.")
    expected = action is TriageAction.EXPECTED
    days = min(max(request.form.get("expires_days", DEFAULT_EXPIRY_DAYS, type=int), 1), MAX_EXPIRY_DAYS)
    return TriageRequest(
        regression_ids=ids,
        action=action,
        actor=actor,
        reason=reason,
        assignee=request.form.get("assignee", "").strip() or (actor if expected else None),
        expires_at=now.astimezone(UTC) + timedelta(days=days) if expected else None,
    )


def retry_message(desk: Desk, notification_id: int) -> Response:
    """Try a failed message again."""
    actor = signed_in()
    if desk.post is None:
        raise ForbiddenError("This site is read-only.")
    try:
        desk.post.retry(notification_id=notification_id, actor=actor)
        flash("The message is on its way again.", "done")
    except RefusedError as refusal:
        flash(str(refusal), "refused")
    return redirect(url_for(".messages"), code=303)


def test_channel(desk: Desk, channel_id: int) -> Response:
    """Send a made-up message through a channel."""
    actor = signed_in()
    if desk.post is None:
        raise ForbiddenError("This site is read-only.")
    try:
        flash(f"{desk.post.test(channel_id=channel_id, actor=actor)}: the test message was accepted.", "done")
    except RefusedError as refusal:
        flash(str(refusal), "refused")
    return redirect(url_for(".messages"), code=303)


def steer(desk: Desk, regression_id: int) -> Response:
    """Pause, resume, cancel or repeat a bisection."""
    actor = signed_in()
    if desk.steer is None:
        raise ForbiddenError("This site is read-only.")
    try:
        action = BisectionAction(request.form.get("action", ""))
        budget_s = request.form.get("budget_s", type=float)
        takes_budget = action in {BisectionAction.RESUME, BisectionAction.RERUN}
        desk.steer(regression_id=regression_id, action=action, actor=actor, budget_s=budget_s if takes_budget else None)
    except (RefusedError, ValueError) as refusal:
        flash(str(refusal), "refused")
    return redirect(url_for(".regression", regression_id=regression_id), code=303)


def place_runner(desk: Desk, runner_id: int) -> Response:
    """Quarantine a runner, or release it."""
    actor = signed_in()
    if desk.fleet is None:
        raise ForbiddenError("This site is read-only.")
    try:
        action = RunnerAction(request.form.get("action", ""))
        desk.fleet(runner_id=runner_id, action=action, reason=request.form.get("reason", ""), actor=actor)
    except (RefusedError, ValueError) as refusal:
        flash(str(refusal), "refused")
    return redirect(url_for(".runners"), code=303)
