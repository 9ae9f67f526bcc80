"""Series with two levels never page; once a week they are named, to whoever asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from service.domain.notice import week_subject
from service.store.tables import Channel, Notification, Series
from service.usecases import weekly
from tests.peers import Peers, deliver, point_channels
from tests.story import Planted, Story

MONDAY = datetime(2030, 1, 7, 6, 5, tzinfo=UTC)


@pytest.fixture
def story(sessions):
    story = Story(sessions, [Planted()] * 4, seed=5)
    story.push(2)
    with sessions.begin() as session:
        first = session.scalars(select(Series.id).order_by(Series.id)).first()
        session.execute(
            update(Series)
            .where(Series.id == first)
            .values(verdict="bimodal", verdict_reason="two levels 12.0% apart, 40% of points on the upper one")
        )
        for channel in session.scalars(select(Channel).where(Channel.kind == "email")):
            channel.events = ["bimodal"]
    return story


def ask(story, now) -> bool:
    with story.sessions.begin() as session:
        return weekly.order_list(session, now=now).deliver


def subjects(story) -> list[tuple[str, str]]:
    with story.sessions() as session:
        rows = session.execute(select(Channel.name, Notification.subject).join(Channel).order_by(Notification.id))
        return [tuple(row) for row in rows]


def test_the_list_is_ordered_once_a_week_for_the_channels_that_ask(story):
    for hours in range(7 * 24):
        ask(story, MONDAY + timedelta(hours=hours))
    assert subjects(story) == [("email", "bimodal:2030-W02")] + [("email", "bimodal:2030-W03")] * (
        MONDAY + timedelta(hours=7 * 24 - 1) >= datetime(2030, 1, 14, 6, tzinfo=UTC)
    )


def test_a_week_without_such_series_says_nothing(story):
    with story.sessions.begin() as session:
        session.execute(update(Series).values(verdict="no_change"))
    assert not ask(story, MONDAY)
    assert subjects(story) == []


@pytest.mark.parametrize(
    ("now", "subject"),
    [
        (datetime(2030, 1, 7, 5, 59, tzinfo=UTC), None),
        (datetime(2030, 1, 7, 6, 0, tzinfo=UTC), "bimodal:2030-W02"),
        (datetime(2030, 1, 13, 23, 59, tzinfo=UTC), "bimodal:2030-W02"),
        (datetime(2029, 12, 31, 12, 0, tzinfo=UTC), "bimodal:2030-W01"),  # the ISO year, not the calendar's
    ],
)
def test_the_week_begins_on_monday_morning(now, subject):
    assert week_subject(now) == subject


def test_the_list_arrives_as_one_message_and_names_the_series(story, tmp_path):
    ask(story, MONDAY)
    story.now = MONDAY
    peers = Peers(tmp_path / "caught")
    try:
        point_channels(story, peers)
        deliver(story, peers)
        deliver(story, peers)
        (mail,) = peers.store.all()
    finally:
        peers.close()
    assert "1 series with two levels, 2030-W02" in mail.title
    assert "two levels 12.0% apart" in mail.text
    assert "/series/" in mail.text
