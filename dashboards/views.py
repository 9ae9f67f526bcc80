"""The dashboard as one Flask blueprint. Server-rendered; only charts need JavaScript, and nothing needs a network.

`create_blueprint(pages, now=...)` gives a read-only site; with `sign_in` (token -> name, or None) and the use cases
behind `triage` and `steer`, people may act. The app needs a `secret_key` for the signed session cookie.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from flask import Blueprint, Response, render_template, request
from markupsafe import Markup

from dashboards import actions, details, evidence_page, formats, lists, policy
from dashboards.desk import Desk, Fleet, Policies, Post, Steer, Triage
from dashboards.figures import belief_bars, sparkline
from service.contract import MeasurementStatus
from service.domain.states import JobVerdict, Standing
from service.store.pages import Pages
from service.store.pages.evidence import ProbeRow
from service.store.pages.fleet import RunnerRow
from service.store.pages.overview import SeriesRow

NAME = "dashboards"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
NAVIGATION = (
    ("overview", "Overview"),
    ("regressions", "Regressions"),
    ("runs", "Runs"),
    ("runners", "Runners"),
    ("messages", "Messages"),
    ("health", "Health"),
    ("policy", "Policy"),
)
READ_RULES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("/", "overview", lists.overview),
    ("/regressions", "regressions", lists.regressions),
    ("/runs", "runs", lists.runs),
    ("/runners", "runners", lists.runners),
    ("/runners/<int:runner_id>/jobs", "runner_jobs", lists.runner_jobs),
    ("/messages", "messages", lists.messages),
    ("/health", "health", lists.health),
    ("/series/<int:series_id>", "series", details.series),
    ("/runs/<int:run_id>", "run", details.run),
    ("/commits/<sha>", "commit", details.commit),
    ("/commits/<sha>/alerts", "commit_alerts", details.commit_alerts),
    ("/regressions/<int:regression_id>", "regression", evidence_page.regression),
    ("/regressions/<int:regression_id>/evidence.json", "evidence", evidence_page.evidence_json),
    ("/policy", "policy", policy.policy),
    ("/sign-in", "sign_in", actions.sign_in_form),
)
WRITE_RULES: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("/sign-in", "sign_in_post", actions.sign_in),
    ("/sign-out", "sign_out", actions.sign_out),
    ("/regressions/triage", "triage", actions.triage),
    ("/regressions/<int:regression_id>/bisection", "steer", actions.steer),
    ("/runners/<int:runner_id>/standing", "place_runner", actions.place_runner),
    ("/policy", "save_policy", policy.save_policy),
    ("/messages/<int:notification_id>/retry", "retry_message", actions.retry_message),
    ("/channels/<int:channel_id>/test", "test_channel", actions.test_channel),
)


def create_blueprint(
    pages: Pages,
    *,
    now: Callable[[], datetime],
    sign_in: Callable[[str], str | None] | None = None,
    triage: Triage | None = None,
    steer: Steer | None = None,
    post: Post | None = None,
    fleet: Fleet | None = None,
    policies: Policies | None = None,
    catcher_url: str | None = None,
) -> Blueprint:
    """Build the dashboard's blueprint over a store and, if given, the use cases that people may call."""
    desk = Desk(
        pages=pages,
        now=now,
        sign_in=sign_in,
        triage=triage,
        steer=steer,
        post=post,
        fleet=fleet,
        policies=policies,
        catcher_url=catcher_url,
    )
    blueprint = Blueprint(
        NAME, __name__, template_folder="templates", static_folder="static", static_url_path="/assets"
    )
    for rule, endpoint, view in READ_RULES:
        blueprint.add_url_rule(rule, endpoint, partial(view, desk), methods=["GET"])
    for rule, endpoint, view in WRITE_RULES:
        blueprint.add_url_rule(rule, endpoint, partial(view, desk), methods=["POST"])
    blueprint.app_context_processor(partial(_context, desk))  # pages of errors have no blueprint
    blueprint.after_request(_harden)
    blueprint.register_error_handler(404, _not_found)
    blueprint.register_error_handler(actions.ForbiddenError, _forbidden)
    return blueprint


def spark_of(row: SeriesRow) -> Markup:
    """The sparkline of an overview row: one value per commit, failed ones as crosses, change points as steps."""
    by_commit: dict[int, float | None] = {}
    for commit_id, value, status in zip(row.commit_ids or (), row.values or (), row.statuses or (), strict=True):
        good = value if status == MeasurementStatus.OK.value else None
        by_commit[commit_id] = by_commit.get(commit_id) if good is None else good
    changed = set(row.change_commit_ids or ())
    drawn = sparkline(
        list(by_commit.values()),
        changed=[index for index, commit_id in enumerate(by_commit) if commit_id in changed],
        state=row.state,
        label=f"{len(by_commit)} commits",
    )
    return Markup(drawn)  # noqa: S704  # numbers and escaped words only


def canaries_of(row: RunnerRow) -> Markup:
    """The canaries of a runner's newest jobs; a vertical line marks each that was off, or came with a fault."""
    verdicts = row.canary_verdicts[::-1]
    drawn = sparkline(
        row.canaries_s[::-1],
        changed=[index for index, verdict in enumerate(verdicts) if verdict in {JobVerdict.BAD, JobVerdict.FAULT}],
        state="failing" if row.standing == Standing.QUARANTINED else "quiet",
        label=f"the compute canary of {len(verdicts)} jobs",
    )
    return Markup(drawn)  # noqa: S704  # numbers and escaped words only


def belief_of(probe: ProbeRow) -> Markup:
    """The belief after one batch as bars, without the first entry (no commit of the range)."""
    measured = {position - 1 for position in (probe.position, *probe.partners)}
    drawn = belief_bars((probe.posterior or [])[1:], probed=measured, label=f"after batch {probe.seq}")
    return Markup(drawn)  # noqa: S704  # numbers and escaped words only


def _context(desk: Desk) -> dict[str, Any]:
    """What every template may use: the formats, the clock's moment, and who is signed in."""
    return {
        "f": formats,
        "spark_of": spark_of,
        "belief_of": belief_of,
        "canaries_of": canaries_of,
        "now": desk.now(),
        "navigation": [page for page in NAVIGATION if desk.policies or page[0] != "policy"],
        "person": actions.person(),
        "may_sign_in": actions.may_sign_in(desk),
        "csrf_token": actions.csrf_token,
    }


def _harden(response: Response) -> Response:
    """No foreign script, no frame, no sniffing, and no copy of a page in a shared cache."""
    response.headers.setdefault("Content-Security-Policy", CONTENT_POLICY)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    if response.mimetype == "text/html":
        response.headers.setdefault("Cache-Control", "private, no-cache")
    return response


def error_page(status: int, title: str, sentence: str) -> Response:
    """A page that says what went wrong and where to go from here; also for addresses that are nobody's."""
    return _harden(Response(render_template("error.html", title=title, sentence=sentence), status=status))


def _not_found(error: Exception) -> Response:
    sentence = getattr(error, "description", None) or f"There is no page at {request.path}."
    return error_page(404, "Not found", sentence)


def _forbidden(error: Exception) -> Response:
    return error_page(403, "Not allowed", str(error))
