"""Both sides of a change, and the belief of a bisection, as charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboards import formats
from dashboards.figures.base import AXIS, every, layout_of, scale_of

MAX_SAMPLES_DRAWN = 400
MAX_OUTLIERS_DRAWN = 60
LEAST_COLUMNS = 10
FENCE = 3.0  # interquartile ranges beyond the quartiles: Tukey, Exploratory Data Analysis (1977), calls these far out
LEAST_MARGIN = 0.02  # of the middle: equal samples still get room


@dataclass(frozen=True, slots=True)
class SampleSide:
    """Raw samples of one side in seconds, in the order they were taken, with the process each ran in."""

    name: str
    sha: str
    samples_s: tuple[float, ...]
    processes: tuple[int, ...]


def robust_range(sides: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The part of the axis that shows both sides: each side's far-out fence or extreme, and a margin.

    One launch that took ten times as long must not squeeze the others into a line.
    """
    lows, highs = [], []
    for side in sides:
        if not side:
            continue
        ordered = sorted(side)
        low, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.75))
        lows.append(max(ordered[0], low - FENCE * (high - low)))
        highs.append(min(ordered[-1], high + FENCE * (high - low)))
    if not lows:
        return 0.0, 1.0
    margin = max((max(highs) - min(lows)) * 0.05, (max(highs) + min(lows)) / 2 * LEAST_MARGIN)
    return min(lows) - margin, max(highs) + margin


def samples_figure(before: SampleSide, after: SampleSide) -> go.Figure:
    """Both sides of a change: the empirical distribution of every raw sample, and the samples themselves below.

    The curve is F(x) = share of samples at or below x; nothing is smoothed or averaged. What lies far outside is marked
    at the edge and counted; the whole axis is one button away (`layout.meta`).
    """
    size, unit = scale_of([*before.samples_s, *after.samples_s], formats.SECOND)
    data: list[dict[str, Any]] = []
    low, high = robust_range([[sample / size for sample in side.samples_s] for side in (before, after)])
    outside = 0
    for row, (side, colour) in enumerate(((before, "var(--before)"), (after, "var(--after)"))):
        if not side.samples_s:
            continue
        beyond = [sample / size for sample in side.samples_s if not low <= sample / size <= high]
        outside += len(beyond)
        ordered = sorted(sample / size for sample in side.samples_s)
        ranks = [(i + 1) / len(ordered) for i in range(len(ordered))]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{side.name} {formats.short(side.sha)} (n = {len(ordered)})",
                "x": every(ordered),
                "y": every(ranks),
                "line": {"color": colour, "width": 2, "shape": "hv"},
                "legendgroup": side.name,
                "hovertemplate": f"%{{y:.0%}} at or below %{{x:.4g}} {unit}<extra>{side.name}</extra>",
            }
        )
        data.append(_strip(side, size, unit, row=row, colour=colour))
        if beyond:
            data.append(_edge_marks(side.name, beyond, unit, row=row, colour=colour, edges=(low, high)))
    layout = layout_of(
        height=360,
        xaxis={"title": {"text": f"raw launch time, {unit}"}, "anchor": "y2", "range": [low, high], **AXIS},
        yaxis={"title": {"text": "share of samples"}, "domain": [0.34, 1], "tickformat": ".0%", **AXIS},
    )
    layout["yaxis2"] = {"domain": [0, 0.24], "range": [1.6, -0.6], **AXIS, "showgrid": False}
    layout["yaxis2"] |= {"tickvals": [0, 1], "ticktext": [before.name, after.name]}
    layout["meta"] = {"outside": outside, "range": [low, high]}
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
    ticks = list(range(0, len(shas), max(1, math.ceil(len(shas) / 12))))
    layout = layout_of(
        height=220,
        xaxis={
            "title": {"text": "candidate commit"},
            "tickvals": ticks,
            "ticktext": [formats.short(shas[i])[:7] for i in ticks],
            **AXIS,
            "showgrid": False,
            "tickangle": 0,
            "range": [-0.5, max(len(shas), LEAST_COLUMNS) - 0.5],
        },
        yaxis={"title": {"text": "probability"}, "range": [0, 1], "tickformat": ".0%", **AXIS},
    )
    layout["bargap"] = 0.3
    return go.Figure(data=data, layout=layout)


def _edge_marks(
    name: str, beyond: Sequence[float], unit: str, *, row: int, colour: str, edges: tuple[float, float]
) -> dict[str, Any]:
    """Samples outside the axis as arrows at its edge, with what they took and how many they are."""
    low, high = edges
    drawn = every(sorted(beyond), MAX_OUTLIERS_DRAWN)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}, outside the axis",
        "legendgroup": name,
        "showlegend": False,
        "x": [high if value > high else low for value in drawn],
        "y": [row for _ in drawn],
        "yaxis": "y2",
        "cliponaxis": False,
        "marker": {
            "color": colour,
            "size": 9,
            "symbol": ["triangle-right" if value > high else "triangle-left" for value in drawn],
        },
        "customdata": [[f"{value:.4g}"] for value in drawn],
        "hovertemplate": f"%{{customdata[0]}} {unit}, one of {len(beyond)} outside the axis<extra>{name}</extra>",
    }


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
        "legendgroup": side.name,
        "showlegend": False,
        "x": [sample / size for sample, _ in drawn],
        "y": [row + offsets[process] for _, process in drawn],
        "yaxis": "y2",
        "marker": {"color": colour, "size": 4, "opacity": 0.55},
        "customdata": [[process] for _, process in drawn],
        "hovertemplate": f"%{{x:.4f}} {unit}, process %{{customdata[0]}}<extra>{side.name}</extra>",
    }
