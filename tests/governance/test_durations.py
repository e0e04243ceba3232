"""Durations as people write and read them (acceptance 19)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.durations import (
    TooShort,
    UnitMissing,
    format_duration,
    format_limit,
    limit_ms,
    parse_duration,
    to_ms,
    to_seconds,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("90 s", 90_000),
        ("90s", 90_000),
        ("2 min", 120_000),
        ("1 min 30 s", 90_000),
        ("1m30s", 90_000),
        ("500 ms", 500),
        ("1.5 h", 5_400_000),
        ("1,5 s", 1_500),
        ("1 day", 86_400_000),
        ("0", 0),
        ("0.0", 0),
        ("0 s", 0),
        ("0.6 ms", 1),
        (" 10  Seconds ", 10_000),
        ("-5 s", -5_000),
    ],
)
def test_a_duration_is_read_with_its_unit(text, milliseconds):
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["90", "1.5", "-5", " 30000 "])
def test_a_number_alone_is_refused_since_it_could_mean_anything(text):
    with pytest.raises(UnitMissing):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0.0001 ms", "0.5 ms", "0.0004 s", "-0.1 ms"])
def test_nothing_above_zero_becomes_zero(text):
    with pytest.raises(TooShort):
        parse_duration(text)


@given(st.floats(min_value=-1, max_value=10**6))
def test_no_limit_above_zero_is_stored_as_none(seconds):
    assert (limit_ms(seconds) == 0) == (seconds <= 0)
    assert limit_ms(None) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "5 parsecs",
        "1 min 30",
        "s",
        "1e3 s",
        "--1 s",
        "9" * 100,
        "1 s, 2 s",
        "nan",
        "9" * 40 + " d",
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - any wording will do
        parse_duration(text)


@given(st.integers(min_value=-(10**10), max_value=10**10))
def test_a_shown_duration_reads_back_as_the_same(milliseconds):
    assert parse_duration(format_duration(milliseconds)) == milliseconds


def test_limits_in_words():
    assert format_limit(None) == "not set"
    assert format_limit(0) == "no limit"
    assert format_limit(90_500) == "1 min 30.5 s"
    assert format_limit(20_000) == "20 s"


def test_seconds_and_milliseconds():
    assert (to_ms(None), to_ms(0.25)) == (0, 250)
    assert (to_seconds(None), to_seconds(250)) == (None, 0.25)
