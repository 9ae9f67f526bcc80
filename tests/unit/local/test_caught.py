"""How a caught message is shown."""

from __future__ import annotations

import pytest

from service.local.caught import framed, linked


@pytest.mark.parametrize(
    ("text", "address", "words"),
    [
        ("see <http://h/regressions/3|#3> now", "http://h/regressions/3", "#3"),
        ("see <https://h/a?b=1&c=2>", "https://h/a?b=1&amp;c=2", "https://h/a?b=1&amp;c=2"),
        ("Open (http://h/x)", "http://h/x", "http://h/x"),
        ("at http://h/x.", "http://h/x", "http://h/x"),
        ('{"url": "http://h/x"}', "http://h/x", "http://h/x"),
    ],
)
def test_an_address_becomes_a_link_with_its_words(text, address, words):
    assert f'<a href="{address}" target="_blank" rel="noopener">{words}</a>' in linked(text)


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "<javascript:alert(1)|click>", "a < b & c"])
def test_everything_else_is_escaped(text):
    assert "<" not in linked(text)


def test_a_picture_is_taken_from_here_only_if_it_came_and_links_open_beside_the_page():
    html = '<p><img src="cid:chart-1%402"><img src=\'cid:other\'><a href="http://h/">x</a></p>'
    shown = framed(html, parts={"chart-1@2"}, address_of=lambda name: f"/parts/{name}")
    assert '<img src="/parts/chart-1@2">' in shown
    assert "'cid:other'" in shown
    assert shown.startswith('<base target="_blank">')
