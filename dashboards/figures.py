"""Pure figures: data in, validated Plotly figures out.

Colours are CSS variables (`var(--line)`); the page's script resolves them, so one figure serves light and dark.
Lines, not clouds: plotly.js draws markers ten times slower, so they stand only where something happened, and more
than `MAX_POINTS` figures are thinned without losing an extreme or a marked point.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboards import formats

MAX_POINTS = 2_000
MARKERS_UP_TO = 120
MAX_SAMPLES_DRAWN = 400
MIN_SPAN = 0.06


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """One commit of a series: figure and interval in seconds (or the metric's unit), and what its hover says."""

    position: int
    sha: str
    subject: str
    value_s: float
    half_width_s: float | None
    environment: str
    runs: int
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChartChange:
    """A change point to mark; `effect` is relative, +0.14 = the number rose by 14 %."""

    position: int
    sha: str
    direction: str
    before_s: float
    after_s: float
    effect: float
    label: str
    regression_id: int | None


@dataclass(frozen=True, slots=True)
class ChartFailure:
    """A commit whose measurement failed, with the reason in words."""

    position: int
    sha: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class SampleSide:
    """Raw samples of one side in seconds, in the order they were taken, with the process each ran in."""

    name: str
    sha: str
    samples_s: tuple[float, ...]
    processes: tuple[int, ...]


def thin(points: Sequence[ChartPoint], keep: Collection[int], limit: int = MAX_POINTS) -> list[ChartPoint]:
    """Thin points to about `limit`: per bucket the first, lowest, highest and last, and every position in `keep`.

    A step, a spike and a marked commit therefore survive. O(n).
    """
    if len(points) <= limit:
        return list(points)
    size = math.ceil(len(points) * 4 / limit)
    chosen: dict[int, ChartPoint] = {}
    for start in range(0, len(points), size):
        bucket = points[start : start + size]
        extremes = (min(bucket, key=lambda p: p.value_s), max(bucket, key=lambda p: p.value_s))
        for point in (bucket[0], *extremes, bucket[-1]):
            chosen[point.position] = point
    chosen.update({point.position: point for point in points if point.position in keep})
    return [chosen[position] for position in sorted(chosen)]


def series_figure(
    points: Sequence[ChartPoint],
    changes: Sequence[ChartChange],
    failures: Sequence[ChartFailure],
    *,
    metric: str = "time",
) -> go.Figure:
    """The history of one series: interval band, line, level of each segment, marked changes and failed commits."""
    shown = thin(points, {change.position for change in changes})
    size, unit = _unit([point.value_s for point in shown], metric)
    low, high = _span([point.value_s / size for point in shown])
    data: list[dict[str, Any]] = []
    if shown:
        data += [*_band(shown, size), _line(shown, size, unit)]
        data += _levels(points, changes, size)
    data += [_marks(changes, size)] if changes else []
    data += [_failures(failures, low)] if failures else []
    layout = _layout(
        height=380,
        xaxis=_commit_axis([*shown, *failures]),
        yaxis={"title": {"text": unit}, "range": [low, high], **_AXIS},
    )
    layout["shapes"] = [_step_line(change) for change in changes]
    layout["annotations"] = [_step_label(change, size, high) for change in changes]
    return go.Figure(data=data, layout=layout)


def samples_figure(before: SampleSide, after: SampleSide) -> go.Figure:
    """Both sides of a change: the empirical distribution of every raw sample, and the samples themselves below.

    The curve is F(x) = share of samples at or below x; nothing is smoothed or averaged.
    """
    size, unit = _unit([*before.samples_s, *after.samples_s], "time")
    data: list[dict[str, Any]] = []
    for row, (side, colour) in enumerate(((before, "var(--before)"), (after, "var(--after)"))):
        if not side.samples_s:
            continue
        ordered = sorted(sample / size for sample in side.samples_s)
        ranks = [(i + 1) / len(ordered) for i in range(len(ordered))]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{side.name} {formats.short(side.sha)} (n = {len(ordered)})",
                "x": _every(ordered),
                "y": _every(ranks),
                "line": {"color": colour, "width": 2, "shape": "hv"},
                "hovertemplate": f"%{{y:.0%}} at or below %{{x:.4g}} {unit}<extra>{side.name}</extra>",
            }
        )
        data.append(_strip(side, size, unit, row=row, colour=colour))
    layout = _layout(
        height=360,
        xaxis={"title": {"text": f"raw launch time, {unit}"}, "anchor": "y2", **_AXIS},
        yaxis={"title": {"text": "share of samples"}, "domain": [0.34, 1], "tickformat": ".0%", **_AXIS},
    )
    layout["yaxis2"] = {"domain": [0, 0.24], "range": [1.6, -0.6], **_AXIS, "showgrid": False}
    layout["yaxis2"] |= {"tickvals": [0, 1], "ticktext": [before.name, after.name]}
    layout["showlegend"] = True
    layout["legend"] = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
    return go.Figure(data=data, layout=layout)


def posterior_figure(shas: Sequence[str], posterior: Sequence[float], *, culprit: str | None = None) -> go.Figure:
    """The belief of a bisection: one bar per candidate commit, in first-parent order."""
    colours = ["var(--after)" if sha == culprit else "var(--line)" for sha in shas]
    data = [
        {
            "type": "bar",
            "x": list(range(len(shas))),
            "y": list(posterior),
            "marker": {"color": colours, "line": {"width": 0}},
            "customdata": [[formats.short(sha), f"/commits/{sha}"] for sha in shas],
            "hovertemplate": "%{customdata[0]}<br>%{y:.1%}<extra></extra>",
        }
    ]
    every = max(1, math.ceil(len(shas) / 12))
    ticks = list(range(0, len(shas), every))
    layout = _layout(
        height=220,
        xaxis={"tickvals": ticks, "ticktext": [formats.short(shas[i])[:7] for i in ticks], **_AXIS, "showgrid": False},
        yaxis={"title": {"text": "probability"}, "range": [0, 1], "tickformat": ".0%", **_AXIS},
    )
    layout["bargap"] = 0.15
    return go.Figure(data=data, layout=layout)


_AXIS: dict[str, Any] = {
    "gridcolor": "var(--grid)",
    "linecolor": "var(--rule)",
    "zeroline": False,
    "ticks": "outside",
    "tickcolor": "var(--rule)",
    "automargin": True,
}


def _layout(*, height: int, xaxis: dict[str, Any], yaxis: dict[str, Any]) -> dict[str, Any]:
    return {
        "template": "none",
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 28, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "ui-monospace, Menlo, Consolas, monospace", "size": 11, "color": "var(--muted)"},
        "hoverlabel": {
            "bgcolor": "var(--panel)",
            "bordercolor": "var(--rule)",
            "font": {"color": "var(--ink)", "size": 12},
            "align": "left",
        },
        "hovermode": "closest",
        "showlegend": False,
        "xaxis": xaxis,
        "yaxis": yaxis,
    }


def _unit(values: Sequence[float], metric: str) -> tuple[float, str]:
    if not formats.is_time(metric):
        return 1.0, metric.replace("_", " ")
    ordered = sorted(values)
    return formats.time_unit(ordered[len(ordered) // 2]) if ordered else (1.0, "s")


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The vertical range: what was measured and a margin, but never less than 6 % of the middle."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    middle = (low + high) / 2
    half = max((high - low) / 2 * 1.25, abs(middle) * MIN_SPAN / 2) or 1.0
    return middle - half, middle + half


def _band(points: Sequence[ChartPoint], size: float) -> list[dict[str, Any]]:
    edges = [[(point.value_s + sign * (point.half_width_s or 0.0)) / size for point in points] for sign in (-1.0, 1.0)]
    shared = {
        "type": "scatter",
        "mode": "lines",
        "x": [point.position for point in points],
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    return [
        {**shared, "y": edges[0], "name": "95 % interval, low"},
        {**shared, "y": edges[1], "name": "95 % interval", "fill": "tonexty", "fillcolor": "var(--band)"},
    ]


def _line(points: Sequence[ChartPoint], size: float, unit: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= MARKERS_UP_TO else "lines",
        "name": "figure",
        "x": [point.position for point in points],
        "y": [point.value_s / size for point in points],
        "line": {"color": "var(--line)", "width": 1.6},
        "marker": {"color": "var(--line)", "size": 4.5},
        "customdata": [_hover(point) for point in points],
        "hovertemplate": (
            f"<b>%{{y:.4~f}} {unit}</b> %{{customdata[2]}}<br>%{{customdata[0]}}  %{{customdata[3]}}"
            "<br>%{customdata[4]}<extra></extra>"
        ),
    }


def _hover(point: ChartPoint) -> list[str]:
    runs = "" if point.runs == 1 else f" · {point.runs} runs"
    flags = f" · {', '.join(point.flags)}" if point.flags else ""
    return [
        formats.short(point.sha),
        f"/commits/{point.sha}",
        formats.half_width(point.value_s, point.half_width_s),
        plain(point.subject),
        plain(f"{point.environment}{runs}{flags}"),
    ]


def plain(text: str, *, limit: int = 80) -> str:
    """Text for a hover label, where plotly.js reads a few HTML tags: no tag survives, and it stays short."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _levels(points: Sequence[ChartPoint], changes: Sequence[ChartChange], size: float) -> list[dict[str, Any]]:
    """The median of each segment between change points, as a dashed level."""
    if not changes or not points:
        return []
    borders = sorted({change.position for change in changes})
    x: list[float | None] = []
    y: list[float | None] = []
    for begin, end in zip([None, *borders], [*borders, None], strict=True):
        segment = [p for p in points if (begin is None or p.position >= begin) and (end is None or p.position < end)]
        if not segment:
            continue
        middle = sorted(p.value_s for p in segment)[len(segment) // 2] / size
        x += [segment[0].position, segment[-1].position, None]
        y += [middle, middle, None]
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "level",
            "x": x,
            "y": y,
            "line": {"color": "var(--muted)", "width": 1, "dash": "dash"},
            "hoverinfo": "skip",
        }
    ]


def _colour(direction: str) -> str:
    return "var(--bad)" if direction == "regression" else "var(--good)"


def _marks(changes: Sequence[ChartChange], size: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "change",
        "x": [change.position for change in changes],
        "y": [change.after_s / size for change in changes],
        "marker": {
            "size": 11,
            "symbol": ["triangle-up" if change.after_s > change.before_s else "triangle-down" for change in changes],
            "color": [_colour(change.direction) for change in changes],
            "line": {"width": 1, "color": "var(--panel)"},
        },
        "customdata": [
            [
                formats.short(change.sha),
                f"/regressions/{change.regression_id}" if change.regression_id else f"/commits/{change.sha}",
                plain(change.label),
            ]
            for change in changes
        ],
        "hovertemplate": "<b>%{customdata[2]}</b><br>%{customdata[0]}<extra></extra>",
    }


def _failures(failures: Sequence[ChartFailure], low: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "failed",
        "x": [failure.position for failure in failures],
        "y": [low for _ in failures],
        "cliponaxis": False,
        "marker": {"size": 9, "symbol": "x-thin", "line": {"width": 2, "color": "var(--warn)"}},
        "customdata": [
            [formats.short(failure.sha), f"/commits/{failure.sha}", plain(failure.reason), plain(failure.subject)]
            for failure in failures
        ],
        "hovertemplate": "<b>%{customdata[2]}</b><br>%{customdata[0]}  %{customdata[3]}<extra></extra>",
    }


def _step_line(change: ChartChange) -> dict[str, Any]:
    x = change.position - 0.5
    line = {"color": _colour(change.direction), "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": line}


def _step_label(change: ChartChange, size: float, high: float) -> dict[str, Any]:
    del size, high
    return {
        "x": change.position - 0.5,
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "text": f"<b>{formats.percent(change.effect)}</b>",
        "font": {"color": _colour(change.direction), "size": 12},
    }


def _commit_axis(points: Sequence[ChartPoint | ChartFailure]) -> dict[str, Any]:
    by_position = {point.position: point.sha for point in points}
    positions = sorted(by_position)
    every = max(1, math.ceil(len(positions) / 10))
    ticks = positions[::every]
    return {
        **_AXIS,
        "tickvals": ticks,
        "ticktext": [by_position[position][:7] for position in ticks],
        "showgrid": False,
        "tickangle": 0,
    }


def _every(values: Sequence[float], limit: int = MAX_POINTS) -> list[float]:
    step = max(1, math.ceil(len(values) / limit))
    kept = list(values[::step])
    return kept if not values or kept[-1] == values[-1] else [*kept, values[-1]]


def _strip(side: SampleSide, size: float, unit: str, *, row: int, colour: str) -> dict[str, Any]:
    """The samples as ticks, one lane per process, so that a mode that belongs to a process can be seen."""
    lanes = sorted(set(side.processes)) or [0]
    step = max(1, math.ceil(len(side.samples_s) / MAX_SAMPLES_DRAWN))
    drawn = list(zip(side.samples_s, side.processes, strict=True))[::step]
    offsets = {lane: (i - (len(lanes) - 1) / 2) * 0.7 / max(len(lanes), 1) for i, lane in enumerate(lanes)}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{side.name}, samples",
        "showlegend": False,
        "x": [sample / size for sample, _ in drawn],
        "y": [row + offsets[process] for _, process in drawn],
        "yaxis": "y2",
        "marker": {"color": colour, "size": 4, "opacity": 0.55},
        "customdata": [[process] for _, process in drawn],
        "hovertemplate": f"%{{x:.4f}} {unit}, process %{{customdata[0]}}<extra>{side.name}</extra>",
    }
