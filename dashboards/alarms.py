"""Figures that cannot be true, over all series: what the page of one series says, where an engineer looks first."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from dashboards.meaning import meaning
from service.store.pages import overview
from service.store.pages.overview import NewestFigure


@dataclass(frozen=True, slots=True)
class Alarm:
    """A newest figure that is faster than its device could be, and the sentence that says by what measure."""

    figure: NewestFigure
    sentence: str


def impossible_figures(session: Session, *, repository: str = "") -> tuple[Alarm, ...]:
    """Every living series whose newest time is better than its device's roof allows."""
    figures = overview.newest_figures(session, repository=repository)
    places = overview.places(session, {figure.environment_id for figure in figures})
    found = []
    for figure in figures:
        place = places[figure.environment_id]
        alarm = meaning(
            benchmark=figure.benchmark,
            flops=figure.flops,
            size_bytes=figure.bytes,
            value_s=figure.value_s,
            device=place.device,
            facts=place.facts,
        ).alarm
        if alarm:
            found.append(Alarm(figure, alarm))
    return tuple(found)
