"""What the page of a series says beside its newest time."""

import re
from html import unescape

import pytest
from sqlalchemy import update
from sqlalchemy.orm import Session

from dashboards import formats
from service.domain.roofline import CANARY_FLOPS
from service.store import tables as t


@pytest.fixture
def page_on_a_core_of(client, engine, built):
    """The page of one of the built series when the core's canary reaches a given rate."""

    def page(number, flop_per_s):
        with Session(engine) as session:
            session.execute(update(t.Environment).values(facts={"canary_reference_s": repr(CANARY_FLOPS / flop_per_s)}))
            session.commit()
        return unescape(client.get(f"/series/{built.series[number].id}").text)

    return page


def facts_in(html):
    return dict(re.findall(r'<dt>([^<]*)</dt><dd class="num">([^<]*)</dd>', html.replace(formats.THIN, " ")))


def test_a_series_says_its_rates_its_share_of_the_roof_and_how_it_stands_beside_the_control(page_on_a_core_of):
    shown = facts_in(page_on_a_core_of(0, 140e9))
    assert shown["Rate"].endswith("GFLOP/s")
    assert shown["Traffic"].endswith("GB/s")
    assert shown["Arithmetic intensity"] == "85.3 FLOP/B"
    assert 60 < float(shown["Share of the canary's rate"].removesuffix(" %")) < 70
    assert 0.7 < float(shown["Times as fast as the control"]) < 0.9


def test_a_control_is_not_compared_with_itself(page_on_a_core_of):
    assert "Times as fast as the control" not in facts_in(page_on_a_core_of(4, 140e9))


def test_a_figure_that_no_device_could_reach_is_an_alarm(page_on_a_core_of):
    assert "implausible" not in page_on_a_core_of(0, 140e9)
    assert "faster than the device could be" in page_on_a_core_of(0, 20e9)


def test_the_overview_lists_every_figure_that_no_device_could_reach(page_on_a_core_of, client, built):
    page_on_a_core_of(0, 140e9)
    assert "Impossible figures" not in client.get("/").text
    page_on_a_core_of(0, 20e9)
    page = unescape(client.get("/").text)
    alarms = page[page.index("Impossible figures") : page.index("Not guarded")]
    assert f"/series/{built.series[0].id}" in alarms
    assert "faster than the device could be" in alarms
