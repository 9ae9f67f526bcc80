import hashlib
import json

import plotly.graph_objects as go
import pytest
from syrupy.extensions.json import JSONSnapshotExtension

from dashboards.figures import (
    MAX_POINTS,
    ChartChange,
    ChartEarlier,
    ChartFailure,
    ChartPoint,
    SampleSide,
    posterior_figure,
    samples_figure,
    series_figure,
    thin,
)


def sha(position: int) -> str:
    return hashlib.sha1(str(position).encode()).hexdigest()


def point(position: int, value_s: float = 1e-3, **more) -> ChartPoint:
    fields = {"sha": sha(position), "subject": f"Commit {position}", "half_width_s": value_s * 0.01,
              "environment": "cpu · abcd1234", "runs": 1}  # fmt: skip
    return ChartPoint(position=position, value_s=value_s, **{**fields, **more})


def change(position: int, **more) -> ChartChange:
    fields = {"sha": sha(position), "direction": "regression", "before_s": 1e-3, "after_s": 1.14e-3, "effect": 0.14,
              "label": "14.0 % slower", "regression_id": 7}  # fmt: skip
    return ChartChange(previous_position=position - 1, position=position, **{**fields, **more})


def trace(figure: go.Figure, name: str):
    return next(one for one in figure.data if one.name == name)


@pytest.fixture
def as_json(snapshot):
    return snapshot.use_extension(JSONSnapshotExtension)


def test_the_figure_of_a_history_is_the_known_one(as_json):
    points = [point(i, 1e-3 if i < 4 else 1.14e-3) for i in range(8) if i != 2]
    failure = ChartFailure(position=2, sha=sha(2), subject="Break the build", reason="build failed: no such file")
    figure = series_figure(points, [change(4)], [failure])
    assert json.loads(figure.to_json()) == as_json


def test_the_figure_of_both_sides_is_the_known_one(as_json):
    before = SampleSide("before", sha(1), (1.0e-3, 1.1e-3, 1.05e-3), (0, 0, 1))
    after = SampleSide("after", sha(2), (1.2e-3, 1.3e-3), (0, 1))
    assert json.loads(samples_figure(before, after).to_json()) == as_json


def test_the_figure_of_a_belief_is_the_known_one(as_json):
    figure = posterior_figure([sha(i) for i in range(3)], [0.01, 0.96, 0.02], culprit=sha(1))
    assert json.loads(figure.to_json()) == as_json


def test_a_series_without_any_point_still_makes_a_figure():
    assert series_figure([], [], []).layout.yaxis.range == (0.0, 1.0)


def test_a_step_survives_thinning_and_so_does_every_marked_commit():
    points = [point(i, 1e-3 * (1.2 if i == 40_123 else 1.0)) for i in range(50_000)]
    kept = thin(points, {12_345})
    assert len(kept) <= MAX_POINTS * 1.1
    assert {12_345, 40_123, 0, 49_999} <= {one.position for one in kept}
    assert [one.position for one in kept] == sorted({one.position for one in kept})


def test_few_points_are_not_thinned():
    points = [point(i) for i in range(MAX_POINTS)]
    assert thin(points, ()) == points


def test_many_points_are_drawn_as_lines_without_markers():
    assert trace(series_figure([point(i) for i in range(500)], [], []), "figure").mode == "lines"
    assert trace(series_figure([point(i) for i in range(20)], [], []), "figure").mode == "lines+markers"


def test_noise_does_not_look_like_a_cliff():
    low, high = series_figure([point(0, 1.000e-3), point(1, 1.001e-3)], [], []).layout.yaxis.range
    assert (high - low) / ((high + low) / 2) == pytest.approx(0.06)


def test_the_unit_fits_the_values():
    assert series_figure([point(0, 4e-6)], [], []).layout.yaxis.title.text == "µs"
    assert series_figure([point(0, 168.0)], [], [], unit="registers").layout.yaxis.title.text == "registers"


def test_a_hover_shows_commit_value_interval_environment_and_no_tag_of_a_subject_survives():
    nasty = "<b>fast</b> & <a href='x'>" + "x" * 200
    line = trace(series_figure([point(3, subject=nasty, runs=2, flags=("contended",))], [], []), "figure")
    short_sha, url, interval, subject, environment = line.customdata[0]
    assert short_sha == sha(3)[:9]
    assert url == f"/commits/{sha(3)}"
    assert "1.0" in interval
    assert subject.startswith("&lt;b&gt;fast&lt;/b&gt; &amp; ")
    assert len(subject) < 130
    assert environment == "cpu · abcd1234 · 2 runs · contended"
    assert "%{y" in line.hovertemplate


def test_a_change_leads_to_its_regression_and_an_orphan_to_its_commit():
    points = [point(i) for i in range(3)]
    marks = trace(series_figure(points, [change(1), change(2, regression_id=None)], []), "change")
    assert [row[1] for row in marks.customdata] == ["/regressions/7", f"/commits/{sha(2)}"]


def test_an_improvement_and_a_regression_differ_in_shape_and_colour():
    better = change(2, direction="improvement", after_s=0.8e-3, effect=-0.2)
    marks = trace(series_figure([point(0)], [change(1), better], []), "change")
    assert marks.marker.symbol == ("triangle-up", "triangle-down")
    assert marks.marker.color == ("var(--bad)", "var(--good)")


def test_a_point_without_an_interval_has_a_band_of_no_width():
    band = trace(series_figure([point(0, half_width_s=None)], [], []), "95 % interval")
    assert band.y == (1.0,)


def test_the_distribution_ends_at_one_and_keeps_every_sample():
    side = SampleSide("before", sha(1), tuple(1e-3 + i * 1e-6 for i in range(300)), tuple(i % 3 for i in range(300)))
    curve = samples_figure(side, side).data[0]
    assert curve.y[-1] == 1.0
    assert len(curve.x) == 300
    assert list(curve.x) == sorted(curve.x)


def test_what_came_before_is_drawn_lighter_up_to_a_labelled_border():
    earlier = ChartEarlier(
        points=[point(i, 2e-3) for i in range(5)], position=5, words="new environment: driver <5> → 6"
    )
    figure = series_figure([point(i) for i in range(3, 9)], [], [], earlier=earlier)
    pale, line = trace(figure, "before"), trace(figure, "figure")
    assert (pale.opacity, line.opacity) == (0.4, None)
    assert list(pale.x) == [0, 1, 2, 3, 4]
    assert figure.layout.yaxis.range[1] > 2.0  # both fit
    [border], [label] = figure.layout.shapes, figure.layout.annotations
    assert (border.x0, border.x1) == (4.5, 4.5)
    assert label.text == "new environment: driver &lt;5&gt; → 6"
    assert set(figure.layout.xaxis.ticktext) >= {sha(0)[:7], sha(8)[:7]}


def test_a_launch_far_outside_does_not_stretch_the_axis_and_is_marked_and_counted():
    usual = tuple(1e-3 * (1 + 0.001 * (i % 10)) for i in range(60))
    before = SampleSide("before", "a" * 40, usual, (0,) * 60)
    after = SampleSide("after", "b" * 40, (*(1.1 * x for x in usual[:58]), 9e-3, 20e-3), (0,) * 60)
    figure = samples_figure(before, after)
    low, high = figure.layout.xaxis.range
    assert low < 1.0
    assert 1.11 < high < 1.2
    assert figure.layout.meta["outside"] == 2
    (marks,) = [trace for trace in figure.data if "outside" in trace.name]
    assert (marks.x[0], [text for (text,) in marks.customdata]) == (high, ["9", "20"])
    assert "one of 2 outside the axis" in marks.hovertemplate


def test_two_modes_are_both_on_the_axis():
    modes = tuple(1e-3 if i % 2 else 1.3e-3 for i in range(40))
    figure = samples_figure(
        SampleSide("before", "a" * 40, modes, (0,) * 40), SampleSide("after", "b" * 40, modes, (0,) * 40)
    )
    low, high = figure.layout.xaxis.range
    assert low < 1.0 < 1.3 < high
    assert figure.layout.meta["outside"] == 0
