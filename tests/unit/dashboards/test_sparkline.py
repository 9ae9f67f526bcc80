import re
from xml.etree import ElementTree as ET

from dashboards.figures import belief_bars, sparkline


def heights(svg: str) -> list[float]:
    points = re.search(r'points="([^"]+)"', svg)
    return [float(pair.split(",")[1]) for pair in points.group(1).split()]


def test_a_slower_commit_is_drawn_higher():
    before, after = heights(sparkline([1.0, 1.2]))
    assert after < before


def test_one_per_cent_of_noise_stays_in_the_middle():
    drawn = heights(sparkline([1.00, 1.01, 0.99]))
    assert max(drawn) - min(drawn) < 10


def test_a_failed_commit_is_a_cross_and_not_a_point():
    svg = sparkline([1.0, None, 1.0])
    assert svg.count("spark-fail") == 1
    assert len(heights(svg)) == 2


def test_nothing_measured_is_a_dashed_line():
    for values in ([], [None, None], [float("nan")]):
        assert "spark-none" in sparkline(values)


def test_equal_values_and_zeros_are_drawn():
    assert heights(sparkline([0.0, 0.0])) == [13.0, 13.0]


def test_it_is_well_formed_and_its_label_is_escaped():
    svg = sparkline([1.0, 2.0], changed=[1], state='x" onload="', label="<script>&")
    tree = ET.fromstring(svg)
    assert tree.find("title").text == "<script>&"
    assert tree.attrib.get("onload") is None


def test_a_belief_has_one_bar_per_commit_and_marks_what_was_measured():
    svg = belief_bars([0.1, 0.8, 0.1], probed=[1])
    assert svg.count("belief-bar") == 3
    assert svg.count("belief-probe") == 1
    ET.fromstring(svg)


def test_no_belief_is_an_empty_picture():
    ET.fromstring(belief_bars([]))
