"""What only a browser can tell: that charts are drawn, fit, follow the theme, and that nothing leaves this machine."""

from __future__ import annotations

import re

import pytest


def paths(site) -> dict[str, str]:
    built = site.built
    return {
        "overview": "/",
        "series": f"/series/{built.series[0].id}",
        "noisy series": f"/series/{built.series[11].id}",
        "named regression": f"/regressions/{built.gemm.id}",
        "searched regression": f"/regressions/{built.moe.id}",
        "regressions": "/regressions?show=all",
        "runs": "/runs",
        "run": "/runs/5",
        "runners": "/runners",
        "messages": "/messages",
        "health": "/health",
        "commit": f"/commits/{built.commits[27].sha}",
    }


NAMES = ("overview", "series", "noisy series", "named regression", "searched regression", "regressions", "runs", "run",
         "runners", "messages", "health", "commit")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_a_phone_and_asks_nobody_else_and_complains_of_nothing(visit, site, name):
    watched = visit(paths(site)[name], width=390)
    assert watched.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert [url for url in watched.requests if not url.startswith((site.url, "data:", "blob:"))] == []
    assert watched.complaints == []


def test_the_history_is_really_drawn(visit, site):
    page = visit(paths(site)["series"]).page
    corners = page.locator(".chart path.js-line").evaluate_all(
        "all => all.map(one => one.getAttribute('d').split('L').length)"
    )
    assert max(corners) > 20
    assert page.locator(".chart .annotation-text").text_content() == "+16.3\u202f%"
    assert page.locator(".chart .points path.point").count() > 25


def test_a_hover_tells_commit_value_interval_and_environment(visit, site):
    page = visit(paths(site)["series"]).page
    plot = page.locator(".chart .nsewdrag").first.bounding_box()
    point = page.locator(".chart .scatterlayer .trace .points path.point").nth(3).bounding_box()
    page.mouse.move(plot["x"] + 5, plot["y"] + 5)
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2, steps=4)
    label = page.locator(".hoverlayer .hovertext")
    label.wait_for()
    said = re.sub(r"\s", " ", label.text_content())
    assert re.search(r"2\.\d+ ms", said)
    assert "± 0." in said
    assert site.built.commits[4].sha[:9] in said
    assert "cpu:AMD EPYC 9454" in said


def test_a_click_on_the_mark_opens_the_regression(visit, site):
    page = visit(paths(site)["series"]).page
    mark = page.locator(".chart .scatterlayer .trace").nth(4).locator("path.point").bounding_box()
    page.mouse.move(mark["x"] + 3, mark["y"] + 20)
    page.mouse.move(mark["x"] + mark["width"] / 2, mark["y"] + mark["height"] / 2, steps=4)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(f"**/regressions/{site.built.gemm.id}")


def test_a_chart_fills_its_box_before_and_after_a_change_of_size(visit, site):
    page = visit(paths(site)["named regression"]).page
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function(
            """(width) => [...document.querySelectorAll(".chart")].every((box) => {
                const [outer, inner] = [box, box.querySelector("svg.main-svg")].map((one) => one.getBoundingClientRect());
                return inner.height > 200 && inner.bottom <= outer.bottom && inner.right <= width;
            })""",
            arg=width,
        )


def background(page) -> str:
    return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")


def line_colour(page) -> str:
    return page.locator(".chart path.js-line").last.evaluate("one => getComputedStyle(one).stroke")


def test_dark_follows_the_system_and_so_do_the_charts(visit, site):
    light = visit(paths(site)["series"], scheme="light").page
    dark = visit(paths(site)["series"], scheme="dark").page
    assert background(light) != background(dark)
    assert line_colour(light) != line_colour(dark)


def test_the_switch_changes_page_and_chart_and_is_remembered(visit, site):
    page = visit(paths(site)["series"], scheme="light").page
    before = (background(page), line_colour(page))
    page.locator("#theme").click()
    page.wait_for_function(
        "(old) => getComputedStyle([...document.querySelectorAll('.chart path.js-line')].at(-1)).stroke !== old",
        arg=before[1],
    )
    after = background(page)
    assert after != before[0]
    page.goto(site.url + "/runs")
    assert background(page) == after


def test_typing_filters_the_rows(visit, site):
    page = visit("/").page
    page.keyboard.press("/")
    page.keyboard.type("gemm m=64")
    rows = page.locator("#series tr[data-words]:visible")
    assert rows.count() == 1
    assert "m=64" in rows.inner_text()


def test_the_site_works_without_javascript(visit, site):
    page = visit("/", java_script_enabled=False).page
    assert page.locator(".spark polyline").count() == 12
    page.locator("input[name=q]").fill("attention")
    page.get_by_role("button", name="Filter").click()
    assert page.locator("#series tr[data-words]").count() == 3
    page.locator("#series a.axes").first.click()
    assert page.locator("tbody tr").count() > 20


def test_a_side_of_the_samples_can_be_put_away_with_the_keyboard(visit, site):
    page = visit(paths(site)["named regression"]).page
    chart = page.locator('.chart[data-figure="samples"]')
    curves = chart.locator(".cartesianlayer .xy path.js-line")
    assert curves.count() == 2
    button = page.locator(".chart-key button", has_text="before")
    assert button.get_attribute("aria-pressed") == "true"
    button.press("Enter")
    page.wait_for_function("document.querySelectorAll('[data-figure=samples] .xy path.js-line').length === 1")
    assert button.get_attribute("aria-pressed") == "false"


def test_the_toolbar_of_a_chart_shows_itself_only_to_a_mouse_or_a_keyboard(visit, site):
    page = visit(paths(site)["named regression"]).page
    page.mouse.move(2, 2)
    seen = "Number(getComputedStyle(document.querySelector('[data-figure=samples] .modebar')).opacity)"
    page.wait_for_function(f"{seen} === 0")
    page.locator('[data-figure="samples"] .modebar-btn').first.focus()
    page.wait_for_function(f"{seen} === 1")
