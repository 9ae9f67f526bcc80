"""The picture in a mail: one series around a step, as a PNG that needs no script and no network.

Plain on purpose: a dot per measurement with its interval, the level on both sides, the commit between them. Drawn at
twice its shown size for sharp screens; light background, because mail clients do not tell a picture their theme.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from service.domain.message import Chart, ChartPoint, percent
from service.domain.states import Direction

WIDTH, HEIGHT = 1184, 440  # pixels; shown at half of it
LEFT, RIGHT, TOP, BOTTOM = 118, 24, 64, 64
INK, FAINT, RULE, PAPER = "#1a2027", "#57606a", "#d8dee4", "#ffffff"
OLD = "#475569"
NEW = {Direction.REGRESSION: "#c2410c", Direction.IMPROVEMENT: "#1d4ed8"}
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where a point of the series lies on the paper."""

    count: int
    low: float
    high: float

    def x(self, index: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (index + 0.5) / self.count

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)


def draw(chart: Chart) -> bytes:
    """Return the PNG of a chart with at least one point on both sides of its step."""
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    pen = ImageDraw.Draw(image)
    frame = _frame_of(chart.points)
    _axis(pen, frame)
    colour = NEW[chart.direction]
    at_step = frame.x(chart.step - 0.5)
    for top in range(TOP, HEIGHT - BOTTOM, 16):
        pen.line((at_step, top, at_step, min(top + 8, HEIGHT - BOTTOM)), fill=colour, width=2)
    before, after = chart.points[: chart.step], chart.points[chart.step :]
    for side, start, ink in ((before, 0, OLD), (after, chart.step, colour)):
        level = statistics.median(point.value_s for point in side)
        ends = frame.x(start - 0.4), frame.x(start + len(side) - 0.6)
        pen.line((ends[0], frame.y(level), ends[1], frame.y(level)), fill=ink, width=4)
        for index, point in enumerate(side, start=start):
            _dot(pen, frame, index, point, ink)
    _words(pen, frame, chart, colour)
    stream = io.BytesIO()
    image.save(stream, format="PNG", optimize=True)
    return stream.getvalue()


def _frame_of(points: Sequence[ChartPoint]) -> _Frame:
    low = min(point.value_s - point.half_width_s for point in points)
    high = max(point.value_s + point.half_width_s for point in points)
    room = 0.12 * (high - low) or 0.01 * high
    return _Frame(len(points), low - room, high + room)


def _axis(pen: ImageDraw.ImageDraw, frame: _Frame) -> None:
    scale, unit = next(((scale, unit) for scale, unit in UNITS if frame.high >= scale), UNITS[-1])
    font = ImageFont.load_default(22)
    for part in range(4):
        value = frame.low + (frame.high - frame.low) * (part + 0.5) / 4
        y = frame.y(value)
        pen.line((LEFT, y, WIDTH - RIGHT, y), fill=RULE, width=1)
        pen.text((LEFT - 12, y), f"{value / scale:.3g} {unit}", fill=FAINT, font=font, anchor="rm")


def _dot(pen: ImageDraw.ImageDraw, frame: _Frame, index: int, point: ChartPoint, ink: str) -> None:
    x, y = frame.x(index), frame.y(point.value_s)
    pen.line((x, frame.y(point.value_s - point.half_width_s), x, frame.y(point.value_s + point.half_width_s)), fill=ink)
    pen.ellipse((x - 6, y - 6, x + 6, y + 6), fill=ink, outline=PAPER, width=2)


def _words(pen: ImageDraw.ImageDraw, frame: _Frame, chart: Chart, colour: str) -> None:
    large, small = ImageFont.load_default(26), ImageFont.load_default(22)
    pen.text((LEFT, 24), f"{chart.workload[:64]}, time by commit", fill=INK, font=large, anchor="lm")
    pen.text((WIDTH - RIGHT, 24), percent(chart.effect), fill=colour, font=large, anchor="rm")
    foot = HEIGHT - BOTTOM + 26
    step_x = min(max(frame.x(chart.step), LEFT + 150), WIDTH - RIGHT - 150)
    pen.text((step_x, foot), chart.points[chart.step].sha[:9], fill=colour, font=small, anchor="mm")
    if frame.x(0) + 190 < step_x:
        pen.text((LEFT, foot), chart.points[0].sha[:9], fill=FAINT, font=small, anchor="lm")
    if step_x + 190 < WIDTH - RIGHT:
        pen.text((WIDTH - RIGHT, foot), chart.points[-1].sha[:9], fill=FAINT, font=small, anchor="rm")
