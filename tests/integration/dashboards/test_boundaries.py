"""The page of a series that continues another: what changed, the bridge, and no alarm."""

from __future__ import annotations

import json
import re
from html import unescape

from sqlalchemy import select

from dashboards import formats
from service.contract import RunReason
from service.store.tables import Series
from tests.integration.usecases.test_bridges import move, tell
from tests.story import Planted


def page_of(client, sessions, comparable_key: str) -> tuple[str, dict]:
    """The words of the page of the one series of a class, and its chart."""
    with sessions() as session:
        series_id = session.scalars(select(Series.id).filter_by(comparable_key=comparable_key)).one()
    html = client.get(f"/series/{series_id}").text
    chart = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL).group(1))
    return unescape(re.sub(r"<[^>]+>", "", html)).replace(formats.THIN, " "), chart


def test_the_page_names_what_changed_and_what_the_bridge_measured(client, sessions):
    story = tell(sessions)
    story.device.facts = {"cpu": "simulated", "driver": "550"}
    for tip in range(4, 10):
        story.push(tip)
    story.device.host_factor = {"moe": 1.4}
    move(story, place="555")
    story.push(10)
    words, chart = page_of(client, sessions, "cpu:555")
    assert "on the same code" in words
    assert "from 5 commits measured on both sides" in words
    moved = re.search(r"\+(\d+\.\d) % on the same code \(\+(\d+\.\d) % to \+(\d+\.\d) %\)", words)
    size, low, high = (float(figure) for figure in moved.groups())
    assert low < size < high
    assert abs(size - 40) < 4
    [label] = [one for one in chart["layout"]["annotations"] if "new environment" in one["text"]]
    assert (label["x"], label["text"]) == (9.5, "new environment: driver 550 → 555")
    assert {"before", "figure"} <= {trace["name"] for trace in chart["data"]}


def test_the_first_series_has_no_border_and_says_where_its_history_goes_on(client, sessions):
    story = tell(sessions, *range(1, 9))
    move(story)
    story.push(9)
    words, chart = page_of(client, sessions, "cpu:simulated")
    assert "the history goes on in another series" in words
    assert chart["layout"].get("annotations", []) == []
    move(story, place="simulated")
    story.push(10)
    words, _ = page_of(client, sessions, "cpu:simulated")
    assert "the history goes on" not in words


def test_a_new_version_is_said_to_have_no_bridge(client, sessions):
    story = tell(sessions, *range(1, 9))
    story.device.version_from = (9, 2)
    story.push(9)
    with sessions() as session:
        new = session.scalars(select(Series.id).where(Series.predecessor_id.is_not(None))).one()
    words = unescape(re.sub(r"<[^>]+>", "", client.get(f"/series/{new}").text))
    assert "New benchmark version: version 1 → 2" in words
    assert "no commit joins the two" in words


def test_what_is_open_in_the_old_environment_is_open_on_the_new_page(client, sessions):
    story = tell(sessions, *range(1, 9), c6=Planted({"moe": 1.25}))
    move(story)
    story.push(9)
    words, _ = page_of(client, sessions, "cpu:new")
    assert "Regression #1 shows in this series" in words
    assert story.run_count(RunReason.CONFIRM) == 1
