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
LEAST_COLUMNS = 10


@dataclass(frozen=True, slots=True)
class SampleSide:
    """Raw samples of one side in seconds, in the order they were taken, with the process each ran in."""

    name: str
    sha: str
    samples_s: tuple[float, ...]
    processes: tuple[int, ...]


def samples_figure(before: SampleSide, after: SampleSide) -> go.Figure:
    """Both sides of a change: the empirical distribution of every raw sample, and the samples themselves below.

    The curve is F(x) = share of samples at or below x; nothing is smoothed or averaged.
    """
    size, unit = scale_of([*before.samples_s, *after.samples_s], formats.SECOND)
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
                "x": every(ordered),
                "y": every(ranks),
                "line": {"color": colour, "width": 2, "shape": "hv"},
                "hovertemplate": f"%{{y:.0%}} at or below %{{x:.4g}} {unit}<extra>{side.name}</extra>",
            }
        )
        data.append(_strip(side, size, unit, row=row, colour=colour))
    layout = layout_of(
        height=360,
        xaxis={"title": {"text": f"raw launch time, {unit}"}, "anchor": "y2", **AXIS},
        yaxis={"title": {"text": "share of samples"}, "domain": [0.34, 1], "tickformat": ".0%", **AXIS},
    )
    layout["yaxis2"] = {"domain": [0, 0.24], "range": [1.6, -0.6], **AXIS, "showgrid": False}
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
    ticks = list(range(0, len(shas), max(1, math.ceil(len(shas) / 12))))
    layout = layout_of(
        height=220,
        xaxis={
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
