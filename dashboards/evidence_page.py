"""The page of a regression, and the same evidence as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flask import abort, jsonify, render_template
from werkzeug.wrappers import Response

from dashboards import evidence as bundle
from dashboards.desk import BisectionAction, Desk, TriageAction
from dashboards.details import embedded, history_figure
from dashboards.evidence import Evidence
from dashboards.figures import posterior_figure, samples_figure
from service.domain.states import REGRESSION_MOVES, BisectionState, RegressionState
from service.store.pages import series as series_rows

STEERS = {
    BisectionState.RUNNING: (BisectionAction.PAUSE, BisectionAction.CANCEL),
    BisectionState.PAUSED: (BisectionAction.RESUME, BisectionAction.CANCEL),
    BisectionState.DONE: (BisectionAction.RERUN,),
    BisectionState.CANCELLED: (BisectionAction.RERUN,),
}


def regression(desk: Desk, regression_id: int) -> str:
    """One regression: what moved, by how much, how sure, who did it, the evidence, and what to do."""
    with desk.pages.snapshot() as session:
        found = bundle.gather(session, regression_id)
        if found is None:
            abort(404, f"There is no regression {regression_id}.")
        lead = series_rows.series_head(session, found.lead.series_id) if found.lead else None
        figures = series_rows.figures_of(session, lead.series_id) if lead else ()
        changes = series_rows.changes_of(session, lead.series_id) if lead else ()
    before, after = bundle.sample_side("before", found.before), bundle.sample_side("after", found.after)
    search = found.searches[0] if found.searches else None
    moves = REGRESSION_MOVES[RegressionState(found.row.state)]
    return render_template(
        "regression.html",
        evidence=found,
        row=found.row,
        lead=lead,
        history=embedded(history_figure(figures, changes, lead)) if lead and figures else None,
        samples=embedded(samples_figure(before, after)) if before.samples_s and after.samples_s else None,
        counts=(len(before.samples_s), len(after.samples_s)),
        search=search,
        posterior=_posterior(search) if search and search.belief else None,
        steers=STEERS.get(BisectionState(search.row.state), ()) if search and desk.steer else (),
        environment=bundle.environment_differences(found.before, found.after),
        code=bundle.code_differences(found.before, found.after),
        same_code=bundle.same_code(found.before, found.after),
        canary=bundle.canary_shift(found.before, found.after),
        result=bundle.result_words(found.before, found.after),
        actions=[action for action in TriageAction if RegressionState(action.value) in moves],
        can_triage=desk.triage is not None,
    )


def _posterior(search: bundle.Search) -> Any:
    candidates = search.row.commit_shas[1:]
    belief = search.belief[1 : 1 + len(candidates)]
    return embedded(posterior_figure(candidates, belief, culprit=search.culprits[0] if search.culprits else None))


def evidence_json(desk: Desk, regression_id: int) -> Response:
    """The evidence bundle as JSON: every raw sample of both sides included."""
    with desk.pages.snapshot() as session:
        found = bundle.gather(session, regression_id)
    if found is None:
        abort(404, f"There is no regression {regression_id}.")
    return jsonify(as_json(found))


def as_json(found: Evidence) -> dict[str, Any]:
    """The bundle as plain data; times are seconds, moments ISO 8601 in UTC."""
    return {
        "regression": {name: value for name, value in _plain(found.row).items() if name != "clone_url"},
        "severity_reason": found.severity_reason,
        "model_steps": list(found.steps),
        "series": [_plain(one) for one in found.touched],
        "before": [_plain(side) for side in found.before],
        "after": [_plain(side) for side in found.after],
        "environment_differences": [_plain(one) for one in bundle.environment_differences(found.before, found.after)],
        "code_differences": [_plain(one) for one in bundle.code_differences(found.before, found.after)],
        "static": [_plain(one) | {"code_changed": one.code_changed, "words": one.words} for one in found.code],
        "result": bundle.result_words(found.before, found.after),
        "canary_shift": bundle.canary_shift(found.before, found.after),
        "controls": [_plain(one) for one in found.controls],
        "aa_control": None if found.aa is None else _plain(found.aa),
        "commits": [_plain(one) for one in found.commits],
        "bisections": [
            {**_plain(search.row), "probes": [_plain(probe) for probe in search.probes]} for search in found.searches
        ],
        "notifications": [_plain(one) for one in found.notifications],
        "audit": [_plain(one) for one in found.audit],
        "measured": {sha: [_plain(one) for one in every] for sha, every in found.measured.items()},
        "cost_device_s": {
            "confirming": found.cost.confirming_s,
            "searching": found.cost.searching_s,
            "total": found.cost.total_s,
        },
        "clone": found.clone,
        "reproduce": found.reproduce,
    }


def _plain(row: Any) -> dict[str, Any]:
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in asdict(row).items()}
