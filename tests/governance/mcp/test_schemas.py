"""Schemas that somebody else wrote: an input is checked against them in words, and they can do no harm."""

import itertools
import socket
import sys
from contextlib import contextmanager

import pytest

from governance.mcp.schemas import input_problems, schema_problem

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DOUBLING = {
    str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}, {"$ref": f"#/$defs/{n + 1}"}]}
    for n in range(60)
}
SUM = {
    "type": "object",
    "properties": {
        "a": {"type": "number"},
        "mode": {"enum": ["fast", "slow"]},
        "list": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 2},
    },
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": 1}, ""),
        ({"a": "secret"}, 'a: must be of type "number"'),
        ({}, "input: 'a' is a required property"),
        ({"a": 1, "mode": "odd"}, 'mode: must be one of ["fast", "slow"]'),
        ({"a": 1, "list": [1, 0]}, "list.1: must be at least 1"),
        ({"a": 1, "list": [1, 2, 3]}, "list: must have at most 2 items"),
        ({"a": 1, "b": 2}, "Additional properties are not allowed ('b' was unexpected)"),
        ({"a": "secret", "mode": 1}, "; mode: must be one of"),
    ],
)
def test_an_input_is_checked_in_words_that_do_not_repeat_it(given, words):
    said = input_problems(SUM, given)
    assert words in said
    assert bool(said) == bool(words)
    assert "secret" not in said


def test_every_version_of_json_schema_is_understood():
    older = {"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}
    older["properties"] = {"a": {"type": "number", "minimum": 0, "exclusiveMinimum": True}}
    assert schema_problem(older) == ""
    assert "a: must be at least 0" in input_problems(older, {"a": 0})


def test_alternatives_at_the_top_count_though_no_chat_model_is_told_of_them():
    schema = {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert input_problems(schema, {"b": 1}) == ""
    assert "does not satisfy anyOf" in input_problems(schema, {"c": 1})


@pytest.mark.parametrize(
    "odd",
    [
        {"$schema": ["a", "b"]},
        {"$schema": 7},
        {"$schema": "http://[::1"},
        {"$id": "http://[::1", "properties": {"a": {"$ref": "#x"}}},
        {"properties": 5},
        {"properties": {"a": {"$ref": 5}}},
        {"required": "a"},
        {"properties": {"a": None}},
        {"properties": {"a": {"type": "integer", "multipleOf": 0}}},
        {"properties": {"a": {"enum": {}}}},
        {"$defs": {"x": {"$dynamicAnchor": 3}}, "properties": {"a": {"$dynamicRef": "#y"}}},
    ],
)
def test_a_schema_that_makes_no_sense_breaks_nothing(odd):
    schema = {"type": "object", **odd}
    assert schema_problem(schema) in {"", "its schema is not valid"}
    assert isinstance(input_problems(schema, {"a": 1}), str)


@pytest.mark.parametrize("dialect", [f"http://json-schema.org/draft-0{n}/schema#" for n in "3467"])
def test_values_of_many_kinds_are_compared_in_one_pass(dialect, monkeypatch):
    """The library compares each with each other one where it cannot sort them."""
    monkeypatch.setattr("jsonschema._utils.equal", pytest.fail)
    values = [n if n % 2 else str(n) for n in range(2_000)]
    schema = {"type": "object", "properties": {"a": {"enum": values}}, "$schema": dialect}
    assert schema_problem(schema) == ""
    for wrong in ({"type": values}, {"required": values}, {"required": ["a", "a"]}):
        newest = {"type": "object", "properties": {"a": wrong}}
        assert schema_problem(newest) == "its schema is not valid"


def test_a_schema_takes_a_bounded_number_of_steps():
    """A schema of the usual kind may have any length that a chat model gets."""
    usual = {f"name{n}": {"type": "string", "description": "x" * 30} for n in range(1_200)}
    assert schema_problem({"type": "object", "properties": usual}) == ""
    crowded = {"allOf": [{"not": {}}] * 8_000}
    assert schema_problem({"type": "object", **crowded}) == "its schema is too long"


def test_a_schema_as_deep_as_a_well_breaks_nothing():
    deep = {}
    for _ in range(5_000):
        deep = {"properties": {"a": deep}}
    assert schema_problem({"type": "object", **deep}) == "its schema is not valid"


def test_a_reference_to_an_address_is_not_followed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        schema = {"type": "object", "properties": {"a": {"$ref": address}}}
        assert schema_problem(schema) == ""
        assert input_problems(schema, {"a": 1}) == ""
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "property",
    [
        {"type": "string", "pattern": "^(a+)+$"},
        {"type": "object", "patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"type": "object", "patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False},
        {"$ref": "#/properties/a"},
        {"$ref": "#/$defs/0"},
        {"$schema": DRAFT_7, "type": "string", "pattern": "^(a+)+$"},
        {"$schema": DRAFT_7, "allOf": [{"$ref": "#/$defs/0"}]},
    ],
)
def test_a_malicious_schema_takes_no_time(property):
    properties = {"a": property, "again": {"$ref": "#"}}
    schema = {"type": "object", "properties": properties, "$defs": DOUBLING | {"60": {}}}
    evil = "a" * 60 + "!"
    given = evil if property.get("type") == "string" else {evil: 1}
    for whole in (schema, {"$schema": DRAFT_7, **schema}):
        assert input_problems(whole, {"a": given, "again": {"a": given}}) == ""


@contextmanager
def at_most(calls):
    """Fail at more calls of functions than that."""
    made = itertools.count()

    def count(frame, event, argument):
        if event in {"call", "c_call"} and next(made) >= calls:
            sys.setprofile(None)
            pytest.fail(f"it takes more than {calls} calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize(
    "part",
    [
        {"not": {"enum": list(range(9_000))}},
        {"allOf": [{}] * 9_000},
        {"allOf": [{"$ref": "#x"}] * 900, "properties": {str(n): {} for n in range(5_000)}},
        {f"unknown {n}": n for n in range(5_000)},
    ],
)
def test_a_long_part_of_a_schema_takes_many_steps(part):
    parts = DOUBLING | {"60": part, "x": {"$anchor": "x"}}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": parts}
    with at_most(calls=5_000_000):
        assert input_problems(schema, {"a": {"b": 1}}) == ""
