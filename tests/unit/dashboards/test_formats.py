from datetime import UTC, datetime, timedelta

import pytest

from dashboards import formats

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def spaced(text: str) -> str:
    return text.replace(formats.THIN, " ").replace(formats.MINUS, "-")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2.61e-3, "2.610 ms"),
        (412.345e-6, "412.3 µs"),
        (0.9999e-3, "999.9 µs"),
        (0.99996e-3, "1.000 ms"),
        (4.2e-9, "4.200 ns"),
        (3e-11, "0.03000 ns"),
        (95.0, "95.00 s"),
        (12_345.6, "12 346 s"),
        (0.0, "0 s"),
        (None, formats.NOTHING),
        (float("nan"), formats.NOTHING),
        (float("inf"), formats.NOTHING),
    ],
)
def test_a_time_has_four_digits_and_the_unit_in_which_it_reads_best(value, shown):
    assert spaced(formats.seconds(value)) == shown


def test_a_figure_that_is_not_a_time_keeps_its_own_unit():
    assert formats.figure(168.0, unit="") == "168.0"
    assert spaced(formats.figure(168.0, unit="registers")) == "168.0 registers"
    assert spaced(formats.figure(0.002, unit="s")) == "2.000 ms"


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0.1632, "+16.3 %"),
        (-0.11, "-11.0 %"),
        (0.0, "0.0 %"),
        (0.0004, "+0.04 %"),
        (-0.000001, "0.00 %"),
        (2.5, "+250 %"),
        (None, formats.NOTHING),
        (float("nan"), formats.NOTHING),
    ],
)
def test_a_change_has_a_sign_unless_it_is_nothing(ratio, shown):
    assert spaced(formats.percent(ratio)) == shown


def test_size_and_interval_are_shown_together():
    assert spaced(formats.effect(0.142, 0.134, 0.150)) == "+14.2 % ± 0.8 %"


@pytest.mark.parametrize(
    ("value", "better", "unit", "words"),
    [
        (0.14, "lower", "s", "14.0 % slower"),
        (-0.14, "lower", "s", "14.0 % faster"),
        (0.14, "higher", "%", "14.0 % better"),
        (-0.14, "higher", "%", "14.0 % worse"),
    ],
)
def test_words_say_what_a_change_means_to_the_user(value, better, unit, words):
    assert spaced(formats.change_words(value, better=better, unit=unit)) == words


def test_a_large_effect_with_a_wide_interval_is_not_sure():
    assert formats.certainty(low=-0.01, high=0.9, confirmed=True) is formats.Certainty.UNSURE


def test_only_a_confirmed_change_is_certain():
    assert formats.certainty(low=0.01, high=0.02, confirmed=False) is formats.Certainty.LIKELY
    assert formats.certainty(low=-0.02, high=-0.01, confirmed=True) is formats.Certainty.CERTAIN


def test_a_rate_needs_work_and_time():
    assert spaced(formats.rate(2.0 * 1024**3, 0.02, "FLOP")) == "107.4 GFLOP/s"
    assert spaced(formats.rate(1e15, 1.0, "FLOP")) == "1.000 PFLOP/s"
    assert formats.rate(0.0, 0.02, "FLOP") == ""
    assert formats.rate(1e9, 0.0, "B") == ""
    assert formats.rate(1e9, None, "B") == ""


@pytest.mark.parametrize(
    ("passed", "shown"),
    [
        (timedelta(seconds=9), "9 s ago"),
        (timedelta(minutes=40), "40 min ago"),
        (timedelta(hours=23), "23 h ago"),
        (timedelta(days=3), "3 d ago"),
        (timedelta(minutes=-5), "in 5 min"),
    ],
)
def test_how_long_ago(passed, shown):
    assert spaced(formats.ago(NOW - passed, NOW)) == shown


def test_a_moment_that_never_was():
    assert formats.ago(None, NOW) == "never"


@pytest.mark.parametrize(
    ("value_s", "shown"),
    [
        (3.21, "3.2 s"),
        (84.2, "84 s"),
        (725.0, "12 min 5 s"),
        (12_000.0, "3 h 20 min"),
        (180_000.0, "2 d 2 h"),
        (None, formats.NOTHING),
    ],
)
def test_a_length_of_time_for_people(value_s, shown):
    assert spaced(formats.duration(value_s)) == shown
