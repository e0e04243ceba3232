"""Text and JSON for every database: the quick way and the slow one say the same."""

import json
import math
from typing import Any

import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from governance.sanitize import _sanitized, clean_arguments, sanitize_json

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()))
    | st.sampled_from(["", "\x00", "\ud800", "\\u0000", "NaN", "Infinity", "-0", "\u2028", "🎉"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Whether two values are alike to the last sign and type: 0.0 is not -0.0, and 1 is not True."""
    return repr(one) == repr(other)


@given(VALUES)
def test_json_is_cleaned_the_same_in_both_ways(value: Any):
    clean = sanitize_json(value)
    assert same(clean, _sanitized(value))
    text = json.dumps(clean, allow_nan=False)
    assert "\\u0000" not in json.dumps(json.loads(text)).replace("\\\\u0000", "")
    text.encode()
    json.dumps(clean, ensure_ascii=False).encode()


@given(VALUES)
def test_clean_json_is_read_back_as_it_was_written(value: Any):
    clean = sanitize_json(value)
    for text in (json.dumps(clean), json.dumps(clean, ensure_ascii=False)):
        assert same(pydantic_core.from_json(text), json.loads(text))


@pytest.mark.parametrize("text", ["-0", "-0.0", "1e400", "1" * 400, '{"a":1,"a":2}', " [1 , 2] "])
def test_odd_json_is_read_as_python_reads_it(text: str):
    assert same(pydantic_core.from_json(text), json.loads(text))


def test_what_is_returned_is_a_copy():
    value: dict[str, Any] = {"a": [1, {"b": "c"}]}
    clean = sanitize_json(value)
    clean["a"][1]["b"] = "changed"
    assert value == {"a": [1, {"b": "c"}]}


def test_deep_json_is_cleaned_too():
    deep: Any = "\x00"
    for _ in range(300):
        deep = [deep]
    clean = sanitize_json(deep)
    for _ in range(300):
        (clean,) = clean
    assert clean == "\ufffd"


def test_numbers_that_json_does_not_have_are_words():
    assert sanitize_json([math.nan, math.inf, -math.inf, 1.5]) == ["nan", "inf", "-inf", 1.5]


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_arguments_are_cleaned_once_and_for_all(arguments: dict[str, Any]):
    clean, problem = clean_arguments(arguments)
    assert same(clean_arguments(clean), (clean, ""))
    if not problem:
        assert len(clean) == len(arguments)


def test_arguments_that_are_too_deep_are_refused():
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    assert clean_arguments(deep) == ({}, "the arguments are nested too deeply")
