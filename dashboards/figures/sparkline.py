"""Small charts as inline SVG: a series' recent figures, and a belief over commits. Pure; strings out.

Colours are classes, so that the page's style sheet decides them in light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from html import escape

WIDTH, HEIGHT, PAD = 132.0, 26.0, 3.0
MIN_SPAN = 0.06


def sparkline(
    values: Sequence[float | None], *, changed: Collection[int] = (), state: str = "quiet", label: str = ""
) -> str:
    """Draw figures in order as one line; None is a failed measurement, `changed` are indexes of change points.

    The vertical span is at least 6 % of the middle value, so that noise does not look like a cliff.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    title = f"<title>{escape(label)}</title>" if label else ""
    open_tag = (
        f'<svg class="spark spark-{escape(state)}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" '
        f'height="{HEIGHT:g}" role="img">{title}'
    )
    if not known:
        return f'{open_tag}<line class="spark-none" x1="{PAD}" x2="{WIDTH - PAD:g}" y1="13" y2="13"/></svg>'
    low, high = _span(known)
    step = (WIDTH - 2 * PAD) / max(len(values) - 1, 1)

    def x(index: int) -> float:
        return PAD + index * step if len(values) > 1 else WIDTH / 2

    def y(value: float) -> float:
        return HEIGHT - PAD - (value - low) / (high - low) * (HEIGHT - 2 * PAD)

    parts = [
        f'<line class="spark-step" x1="{x(i) - step / 2:.1f}" x2="{x(i) - step / 2:.1f}" y1="0" y2="{HEIGHT:g}"/>'
        for i in sorted(changed)
    ]
    drawn = [(i, value) for i, value in enumerate(values) if value is not None and math.isfinite(value)]
    points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in drawn)
    parts.append(f'<polyline class="spark-line" points="{points}"/>')
    parts += [
        f'<path class="spark-fail" d="M{x(i) - 2:.1f} {HEIGHT - 5:g}l4 4m0 -4l-4 4"/>'
        for i, value in enumerate(values)
        if value is None or not math.isfinite(value)
    ]
    last, value = drawn[-1]
    parts.append(f'<circle class="spark-dot" cx="{x(last):.1f}" cy="{y(value):.1f}" r="2.4"/>')
    return f"{open_tag}{''.join(parts)}</svg>"


def _span(known: Sequence[float]) -> tuple[float, float]:
    low, high = min(known), max(known)
    middle = (low + high) / 2
    least = abs(middle) * MIN_SPAN or 1.0
    if high - low < least:
        low, high = middle - least / 2, middle + least / 2
    return low, high


def belief_bars(posterior: Sequence[float], *, probed: Collection[int] = (), label: str = "") -> str:
    """Draw a probability per commit as bars, one column per commit; the commits of this batch are underlined."""
    count = max(len(posterior), 1)
    column = WIDTH / count
    bar = max(column - 1, 1.0)
    parts = []
    for index, probability in enumerate(posterior):
        height = max(0.0, min(1.0, probability)) * (HEIGHT - 4)
        parts.append(
            f'<rect class="belief-bar" x="{index * column:.1f}" y="{HEIGHT - 3 - height:.1f}" '
            f'width="{bar:.1f}" height="{height:.1f}"/>'
        )
        if index in probed:
            parts.append(
                f'<rect class="belief-probe" x="{index * column:.1f}" y="{HEIGHT - 2:g}" width="{bar:.1f}" height="2"/>'
            )
    title = f"<title>{escape(label)}</title>" if label else ""
    return (
        f'<svg class="belief" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" height="{HEIGHT:g}" '
        f'role="img">{title}{"".join(parts)}</svg>'
    )
