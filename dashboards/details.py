"""The pages of one thing: a series, a run, a commit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flask import abort, redirect, render_template, url_for
from markupsafe import Markup
from plotly.graph_objects import Figure
from plotly.io import to_json
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from dashboards import boundary, formats
from dashboards.desk import Desk
from dashboards.figures import ChartChange, ChartFailure, ChartPoint, series_figure
from dashboards.meaning import Meaning, meaning
from service.contract import MeasurementStatus
from service.domain.code_changes import CodeChange
from service.domain.mixes import load_mixes, problem_key
from service.domain.points import Figure as PointFigure
from service.domain.points import to_points
from service.domain.states import OPEN_REGRESSION_STATES
from service.store import code_changes, lineage
from service.store.pages import regressions as regression_rows
from service.store.pages import runs as run_rows
from service.store.pages import series as series_rows
from service.store.pages.series import ChangeRow, FailedRunRow, FigureRow, SeriesHead

Z95 = 1.959964
ROWS_SHOWN = 200
CODE_CHANGES_SHOWN = 30


def embedded(chart: Figure) -> Markup:
    """A figure as JSON that may stand inside a script element: nothing in it can end the element."""
    text = to_json(chart, validate=False, remove_uids=True) or "{}"
    escaped = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(escaped)  # noqa: S704  # escaped in the line above


def chart_points(rows: Sequence[FigureRow]) -> list[ChartPoint]:
    """One chart point per commit of the first-parent line; several runs of a commit are averaged as detection does."""
    usable = [row for row in rows if row.position is not None and row.value_s is not None and row.value_s > 0]
    ok = [row for row in usable if row.status == MeasurementStatus.OK.value]
    newest = {row.commit_id: row for row in ok}
    points = to_points(
        PointFigure(
            commit_id=row.commit_id,
            position=row.position or 0,
            value_s=row.value_s or 0.0,
            half_width_s=row.half_width_s,
            run_id=row.run_id,
        )
        for row in ok
    )
    drawn = []
    for point in points:
        row = newest[point.commit_id]
        environment = (
            f"{row.device} · {row.fingerprint[:8]}" if row.device and row.fingerprint else "environment unknown"
        )
        drawn.append(
            ChartPoint(
                position=point.position,
                sha=row.sha,
                subject=row.subject,
                value_s=point.value_s,
                half_width_s=Z95 * point.se * point.value_s if point.se else None,
                environment=environment,
                runs=point.runs,
                flags=tuple(row.flags),
            )
        )
    return drawn


def chart_failures(rows: Sequence[FigureRow], failed_runs: Sequence[FailedRunRow] = ()) -> list[ChartFailure]:
    """The commits of the line that have no good measurement at all, with the newest reason."""
    good = {row.commit_id for row in rows if row.status == MeasurementStatus.OK.value}
    good |= {row.commit_id for row in rows if row.status == MeasurementStatus.IDENTICAL.value}  # not timed, not failed
    failed = {row.commit_id: row for row in rows if row.commit_id not in good and row.position is not None}
    first = min((row.position for row in rows if row.position is not None), default=0)
    whole = {run.commit_id: run for run in reversed(failed_runs) if run.commit_id not in good and run.position >= first}
    return [
        ChartFailure(
            position=run.position,
            sha=run.sha,
            subject=run.subject,
            reason=f"{run.stage or 'run'} failed: {run.reason or 'no reason given'}",
        )
        for commit_id, run in whole.items()
        if commit_id not in failed
    ] + [
        ChartFailure(
            position=row.position or 0,
            sha=row.sha,
            subject=row.subject,
            reason=f"{formats.sentence(row.status)}: {row.error}" if row.error else formats.sentence(row.status),
        )
        for row in failed.values()
    ]


def chart_changes(changes: Sequence[ChangeRow], head: SeriesHead) -> list[ChartChange]:
    """The change points that stand, as marks."""
    return [
        ChartChange(
            previous_position=change.position - 1 if change.previous_position is None else change.previous_position,
            position=change.position,
            sha=change.sha,
            direction=change.direction,
            before_s=change.before_s,
            after_s=change.after_s,
            effect=change.effect,
            label=f"{formats.change_words(change.effect, better=head.better, unit=head.unit)} "
            f"({formats.effect(change.effect, change.effect_low, change.effect_high)})",
            regression_id=change.regression_id,
        )
        for change in changes
        if change.withdrawn_at is None and change.position is not None
    ]


def history_figure(
    rows: Sequence[FigureRow],
    changes: Sequence[ChangeRow],
    head: SeriesHead,
    *,
    failed_runs: Sequence[FailedRunRow] = (),
    earlier: boundary.Before | None = None,
    code: Sequence[CodeChange] = (),
) -> Figure:
    """The chart of a series from its rows, behind that of the series which it continues.

    `code` are the findings of its machine code: marked where they came in.
    """
    words: dict[str, list[str]] = {}
    for found in code:
        words.setdefault(found.after.sha, []).append(f"{found.target}: {found.words}")
    return series_figure(
        [replace(one, code="; ".join(words[one.sha])) if one.sha in words else one for one in chart_points(rows)],
        chart_changes(changes, head),
        chart_failures(rows, failed_runs),
        earlier=boundary.chart_earlier(earlier, chart_points(earlier.rows)) if earlier else None,
        unit=head.unit,
    )


def series(desk: Desk, series_id: int) -> str:
    """One series: its chart, its state and noise floor, its changes, its figures."""
    with desk.pages.snapshot() as session:
        head = series_rows.series_head(session, series_id)
        if head is None:
            abort(404, f"There is no series {series_id}.")
        rows = series_rows.figures_of(session, series_id)
        changes = series_rows.changes_of(session, series_id)
        controls = series_rows.controls_beside(session, head)
        failed_runs = series_rows.failed_runs_beside(session, head)
        earlier = boundary.before(session, head, rows)
        inherited = boundary.inherited_changes(session, head)
        code = code_changes.of_benchmark(session, repository_id=head.repository_id, benchmark=head.benchmark)
        living_id = lineage.living_kin(session, series_id=series_id)
        ok = [row for row in rows if row.status == MeasurementStatus.OK.value and row.value_s]
        means = newest_meaning(session, head, ok[-1]) if ok and head.unit == formats.SECOND else None
    open_ids = {
        change.regression_id
        for change in (*changes, *inherited)
        if change.withdrawn_at is None and change.regression_state in {state.value for state in OPEN_REGRESSION_STATES}
    }
    return render_template(
        "series.html",
        head=head,
        rows=list(reversed(rows))[:ROWS_SHOWN],
        row_count=len(rows),
        changes=list(reversed(changes)),
        controls=controls,
        last=ok[-1] if ok else None,
        means=means,
        open_ids=sorted(open_ids - {None}, key=str),
        chart_json=(
            embedded(history_figure(rows, changes, head, failed_runs=failed_runs, earlier=earlier, code=code))
            if rows
            else None
        ),
        code=code[:CODE_CHANGES_SHOWN],
        earlier=earlier,
        living_id=living_id,
        detection=detection_facts(head.detection),
    )


def newest_meaning(session: Session, head: SeriesHead, last: FigureRow) -> Meaning:
    """What the newest time of a series means on the device that it was measured on."""
    place = series_rows.place_of_run(session, last.run_id)
    control = series_rows.control_of_run(session, head, run_id=last.run_id, commit_id=last.commit_id)
    return meaning(
        benchmark=head.benchmark,
        flops=head.flops,
        size_bytes=head.bytes,
        value_s=last.value_s or 0.0,
        device=place.device if place else "",
        facts=place.facts if place else {},
        control_s=control.value_s if control else None,
        problem_key=problem_key(head.problem, head.axes),
        steps=load_mixes(),
    )


def detection_facts(detection: dict[str, Any]) -> list[tuple[str, str]]:
    """The detector's notes as label and words; shares are relative, unknown keys are shown as they are."""
    shares = {
        "noise": "noise floor",
        "floor": "smallest step that counts",
        "detectable": "smallest detectable change",
        "false_alarm_rate": "false-alarm rate",
    }
    facts = []
    for key, value in detection.items():
        if key in shares and isinstance(value, int | float):
            facts.append((shares[key], formats.share(value)))
        elif isinstance(value, int | str):
            facts.append((formats.sentence(key), str(value)))
        elif isinstance(value, float):
            facts.append((formats.sentence(key), formats.digits(value)))
    return facts


def run(desk: Desk, run_id: int) -> str:
    """One run: where, when, how it went, and what it measured."""
    with desk.pages.snapshot() as session:
        row = run_rows.run_row(session, run_id)
        detail = run_rows.run_detail(session, run_id)
        if row is None or detail is None:
            abort(404, f"There is no run {run_id}.")
        measured = run_rows.measured_in_run(session, run_id)
    return render_template("run.html", row=row, detail=detail, measured=measured)


def _commit_id_part(sha: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{4,64}", sha):
        abort(404, "A commit id is 4 to 64 hexadecimal digits.")
    return sha.lower()


def commit(desk: Desk, sha: str) -> str | Response:
    """All that is known of one commit: what it changed, what blames it, how it was measured."""
    wanted = _commit_id_part(sha)
    with desk.pages.snapshot() as session:
        found = run_rows.commits_like(session, wanted)
        if not found:
            abort(404, f"No commit that this service has seen starts with {wanted}.")
        if len(found) > 1 and len({row.sha for row in found}) > 1:
            return render_template("commits.html", sha=wanted, found=found)
        if found[0].sha != sha:
            return redirect(url_for(".commit", sha=found[0].sha))
        sections = [
            {
                "commit": row,
                "known": run_rows.known_shas(session, repository_id=row.repository_id, shas=row.parents),
                "regressions": regression_rows.regressions_of_commit(session, row.commit_id),
                "runs": run_rows.runs_of_commit(session, row.commit_id),
                "measured": run_rows.measured_at_commit(session, row.commit_id),
                "code": code_changes.of_commit(session, commit_id=row.commit_id),
            }
            for row in found
        ]
    return render_template("commit.html", sections=sections, sha=found[0].sha)


def commit_alerts(desk: Desk, sha: str) -> dict[str, Any]:
    """The alerts of one commit as JSON."""
    wanted = _commit_id_part(sha)
    with desk.pages.snapshot() as session:
        alerts = [
            {
                "regression": row.regression_id,
                "repository": row.repository,
                "direction": row.direction,
                "state": row.state,
                "severity": row.severity,
                "effect": row.effect,
                "effect_low": row.effect_low,
                "effect_high": row.effect_high,
                "culprit": row.culprit_sha,
                "range": [row.good_sha, row.bad_sha],
                "series": row.series_count,
                "url": url_for(".regression", regression_id=row.regression_id),
            }
            for found in run_rows.commits_like(session, wanted)
            for row in regression_rows.regressions_of_commit(session, found.commit_id)
        ]
    return {"commit": wanted, "alerts": alerts}
