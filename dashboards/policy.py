"""What counts as a change: in force, tried on the last 90 days, then saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from flask import abort, flash, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from dashboards import actions
from dashboards.desk import Desk, Policies, PolicyWish, RefusedError

DIFFERENCES_SHOWN = 200


def policy(desk: Desk) -> str:
    """The policies in force; with a wish in the address, what it would have done, and the button that saves it."""
    policies = _policies(desk)
    wish, preview = None, None
    if request.args.get("repository") and actions.person() is not None:  # it reads the whole history
        try:
            wish = _wish(request.args)
            preview = policies.preview(wish)
        except RefusedError as refusal:
            flash(str(refusal), "refused")
    return render_template(
        "policy.html",
        rows=policies.in_force(),
        given=request.args,
        wish=wish,
        preview=preview,
        counts=Counter(one.kind for one in preview.differences) if preview else {},
        shown=[one for one in preview.differences if one.kind != "kept"][:DIFFERENCES_SHOWN] if preview else (),
    )


def save_policy(desk: Desk) -> Response:
    """Put a policy into force."""
    actor = actions.signed_in()
    policies = _policies(desk)
    try:
        policies.save(_wish(request.form), actor=actor)
        flash("The policy is in force from the next report on.", "done")
    except RefusedError as refusal:
        flash(str(refusal), "refused")
    return redirect(url_for(".policy"), code=303)


def _policies(desk: Desk) -> Policies:
    if desk.policies is None:
        abort(404, "This site does not show policies.")
    return desk.policies


def _wish(given: Mapping[str, str]) -> PolicyWish:
    """The form's fields; shares are given in percent. Raises RefusedError."""
    return PolicyWish(
        repository=given.get("repository", "").strip(),
        min_effect=_share(given, "min_effect", "smallest change"),
        confidence=_share(given, "confidence", "confidence"),
        workload=given.get("workload", "").strip() or None,
    )


def _share(given: Mapping[str, str], name: str, label: str) -> float | None:
    text = given.get(name, "").strip().removesuffix("%").strip()
    if not text:
        return None
    try:
        return float(text) / 100
    except ValueError as error:
        raise RefusedError(f"The {label} is {text!r}: it must be a number in percent.") from error
