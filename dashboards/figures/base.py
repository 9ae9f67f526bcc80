"""What every figure shares: axes, layout, units, and how points are thinned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dashboards import formats

MAX_POINTS = 2_000
MIN_SPAN = 0.06

AXIS: dict[str, Any] = {
    "gridcolor": "var(--grid)",
    "linecolor": "var(--rule)",
    "zeroline": False,
    "ticks": "outside",
    "tickcolor": "var(--rule)",
    "automargin": True,
}


def layout_of(*, height: int, xaxis: dict[str, Any], yaxis: dict[str, Any]) -> dict[str, Any]:
    """The layout of every figure: no template, no background, quiet grid, monospace numerals."""
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


def scale_of(values: Sequence[float], unit: str) -> tuple[float, str]:
    """By what to divide, and the symbol: seconds become the part of a second in which most of the values read best."""
    if unit != formats.SECOND or not values:
        return 1.0, unit
    return formats.time_unit(sorted(values)[len(values) // 2])


def span_of(values: Sequence[float]) -> tuple[float, float]:
    """The vertical range: what was measured and a margin, but never less than 6 % of the middle."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    middle = (low + high) / 2
    half = max((high - low) / 2 * 1.25, abs(middle) * MIN_SPAN / 2) or 1.0
    return middle - half, middle + half


def every(values: Sequence[float], limit: int = MAX_POINTS) -> list[float]:
    """Every n-th value so that about `limit` are left; the last one always stays."""
    step = max(1, math.ceil(len(values) / limit))
    kept = list(values[::step])
    return kept if not values or kept[-1] == values[-1] else [*kept, values[-1]]


def plain(text: str, *, limit: int = 80) -> str:
    """Text for a hover label, where plotly.js reads a few HTML tags: no tag survives, and it stays short."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
