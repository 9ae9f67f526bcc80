"""The picture in a mail: what it shows, and that it comes with the mail."""

from __future__ import annotations

import io
from dataclasses import replace

from PIL import Image

from service.adapters.chart import HEIGHT, NEW, OLD, WIDTH, draw
from service.adapters.email import compose
from service.domain.states import Direction
from tests.builders_messages import CHARTED


def pixels_of(png, colour):
    image = Image.open(io.BytesIO(png)).convert("RGB")
    wanted = tuple(int(colour[k : k + 2], 16) for k in (1, 3, 5))
    data = image.load()
    return [(x, y) for x in range(image.width) for y in range(image.height) if data[x, y] == wanted]


def test_the_old_level_is_left_and_low_and_the_new_one_right_and_high():
    png = draw(CHARTED.chart)
    assert Image.open(io.BytesIO(png)).size == (WIDTH, HEIGHT)
    old, new = pixels_of(png, OLD), pixels_of(png, NEW[Direction.REGRESSION])
    assert max(x for x, _ in old) < WIDTH * 0.7
    assert min(y for _, y in old) > HEIGHT / 2  # slower is higher
    assert any(x > WIDTH * 0.9 and 64 < y < HEIGHT / 2 for x, y in new)


def test_the_same_chart_is_the_same_picture():
    assert draw(CHARTED.chart) == draw(CHARTED.chart)


def test_a_series_with_one_point_on_each_side_and_no_spread_can_be_drawn():
    first, last = CHARTED.chart.points[0], CHARTED.chart.points[-1]
    flat = replace(
        CHARTED.chart, points=(replace(first, half_width_s=0.0), replace(last, value_s=first.value_s)), step=1
    )
    assert draw(flat).startswith(b"\x89PNG")


def test_the_mail_carries_the_picture_that_its_page_shows():
    mail = compose(CHARTED, sender="kw@example.org", to=["team@example.org"], thread=None)
    (picture,) = (part for part in mail.walk() if part.get_content_type() == "image/png")
    page = mail.get_body(("html",)).get_content()
    assert f'src="cid:{picture["Content-ID"][1:-1]}"' in page
    assert picture.get_content() == draw(CHARTED.chart)
