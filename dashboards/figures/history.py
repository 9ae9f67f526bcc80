"""The history of one series as a chart."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboards import formats
from dashboards.figures.base import AXIS, MAX_POINTS, layout_of, plain, scale_of, span_of

MARKERS_UP_TO = 120


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
    code: str = ""  # what changed in its machine code, in words


@dataclass(frozen=True, slots=True)
class ChartChange:
    """A change point to mark: the step lies after `previous_position`, up to `position`.

    `effect` is relative, +0.14 = the number rose by 14 %.
    """

    previous_position: int
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
class ChartEarlier:
    """The series that this one continues: its points, where the new one begins, and what changed there in words."""

    points: Sequence[ChartPoint]
    position: int
    words: str


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
    earlier: ChartEarlier | None = None,
    unit: str = formats.SECOND,
) -> go.Figure:
    """The history of one series: interval band, line, level of each segment, marked changes and failed commits.

    What came before it in another environment is drawn lighter, up to a labelled border: the step there is no change.
    """
    coded = [point for point in points if point.code]
    shown = thin(points, {change.position for change in changes} | {point.position for point in coded})
    before = thin(earlier.points, ()) if earlier else []
    size, symbol = scale_of([point.value_s for point in shown], unit)
    low, high = span_of([edge / size for point in (*before, *shown) for edge in _interval(point)])
    data: list[dict[str, Any]] = [_line(before, size, symbol, pale=True)] if before else []
    if shown:
        data += [*_band(shown, size), _line(shown, size, symbol)]
        data += _levels(points, changes, size)
    data += [_code_marks(coded, size)] if coded else []
    data += [_marks(changes, size)] if changes else []
    data += [_failures(failures, low)] if failures else []
    layout = layout_of(
        height=380,
        xaxis=_commit_axis([*before, *shown, *failures]),
        yaxis={"title": {"text": symbol}, "range": [low, high], **AXIS},
    )
    layout["shapes"] = [_step_range(change) for change in changes]
    layout["annotations"] = [_step_label(change) for change in changes]
    if earlier:
        layout["shapes"].append(_border(earlier))
        layout["annotations"].append(_border_label(earlier))
    return go.Figure(data=data, layout=layout)


def _code_marks(points: Sequence[ChartPoint], size: float) -> dict[str, Any]:
    """Where the machine code became another: no change of time by itself, but a place to look."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "other machine code",
        "x": [point.position for point in points],
        "y": [point.value_s / size for point in points],
        "customdata": [[formats.short(point.sha), f"/commits/{point.sha}", plain(point.code)] for point in points],
        "hovertemplate": "<b>%{customdata[0]}</b>  %{customdata[2]}<extra></extra>",
        "marker": {"symbol": "diamond-open", "size": 9, "color": "var(--muted)"},
    }


def _interval(point: ChartPoint) -> tuple[float, float]:
    half = point.half_width_s or 0.0
    return point.value_s - half, point.value_s + half


def _band(points: Sequence[ChartPoint], size: float) -> list[dict[str, Any]]:
    intervals = [_interval(point) for point in points]
    shared = {
        "type": "scatter",
        "mode": "lines",
        "x": [point.position for point in points],
        "line": {"width": 0},
        "hoverinfo": "skip",
    }
    return [
        {**shared, "y": [low / size for low, _ in intervals], "name": "95 % interval, low"},
        {
            **shared,
            "y": [high / size for _, high in intervals],
            "name": "95 % interval",
            "fill": "tonexty",
            "fillcolor": "var(--band)",
        },
    ]


def _line(points: Sequence[ChartPoint], size: float, unit: str, *, pale: bool = False) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= MARKERS_UP_TO else "lines",
        "name": "before" if pale else "figure",
        "x": [point.position for point in points],
        "y": [point.value_s / size for point in points],
        "line": {"color": "var(--line)", "width": 1.6},
        "marker": {"color": "var(--line)", "size": 4.5},
        "customdata": [_hover(point) for point in points],
        "hovertemplate": (
            f"<b>%{{y:.4~f}} {unit}</b> %{{customdata[2]}}<br>%{{customdata[0]}}  %{{customdata[3]}}"
            "<br>%{customdata[4]}<extra></extra>"
        ),
        **({"opacity": 0.4} if pale else {}),
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


def _step_range(change: ChartChange) -> dict[str, Any]:
    """Where the step lies: a dotted line between neighbours, a shaded range where commits between were not measured."""
    place = {"xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below"}
    colour = _colour(change.direction)
    if change.position - change.previous_position <= 1:
        x = change.position - 0.5
        return {"type": "line", "x0": x, "x1": x, "line": {"color": colour, "width": 1, "dash": "dot"}, **place}
    soft = "var(--bad-soft)" if change.direction == "regression" else "var(--good-soft)"
    return {
        "type": "rect",
        "x0": change.previous_position,
        "x1": change.position,
        "fillcolor": soft,
        "line": {"color": colour, "width": 1, "dash": "dot"},
        **place,
    }


def _step_label(change: ChartChange) -> dict[str, Any]:
    return {
        "x": (change.previous_position + change.position) / 2,
        "xref": "x",
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "text": f"<b>{formats.percent(change.effect)}</b>",
        "font": {"color": _colour(change.direction), "size": 12},
    }


def _border(earlier: ChartEarlier) -> dict[str, Any]:
    x = earlier.position - 0.5
    line = {"color": "var(--muted)", "width": 1.5, "dash": "dashdot"}
    return {"type": "line", "x0": x, "x1": x, "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _border_label(earlier: ChartEarlier) -> dict[str, Any]:
    return {
        "x": earlier.position - 0.5,
        "xref": "x",
        "xanchor": "right",
        "y": 0.02,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
        "text": plain(earlier.words),
        "font": {"color": "var(--muted)", "size": 11},
    }


def _commit_axis(points: Sequence[ChartPoint | ChartFailure]) -> dict[str, Any]:
    by_position = {point.position: point.sha for point in points}
    positions = sorted(by_position)
    every = max(1, math.ceil(len(positions) / 10))
    ticks = positions[::every]
    return {
        **AXIS,
        "title": {"text": "commit, in first-parent order"},
        "tickvals": ticks,
        "ticktext": [by_position[position][:7] for position in ticks],
        "showgrid": False,
        "tickangle": 0,
    }
