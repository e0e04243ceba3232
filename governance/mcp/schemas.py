"""Checks the schemas that servers send, and checks inputs against them. Each problem is a clause.

A schema is untrusted data, so no reference in it is fetched, no pattern in it is run, and a check takes a limited
number of steps. The server itself checks the rest.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from governance.core.excerpts import shortened

logger = logging.getLogger(__name__)

LONGEST_SCHEMA = 100_000  # characters; every request to a chat model contains the schema
_MOST_STEPS = 20_000
_MOST_SCHEMA_STEPS = 400_000  # more than above, because this check runs in a thread
# The number of items of a list or an object that take at most as long to check as one keyword.
_ITEMS_PER_STEP = 10
_CHARACTERS_PER_STEP = 1_000
_MOST_PROBLEMS = 10
_LONGEST_CLAUSE = 200
_UNCHECKED = frozenset({"pattern", "patternProperties", "unevaluatedProperties", "uniqueItems"})
_WORDS = {
    "type": "must be of type {}",
    "enum": "must be one of {}",
    "const": "must be {}",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
}
_remaining: ContextVar[int] = ContextVar("remaining")  # steps

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _TooManySteps(Exception):
    """The check needs more steps than it may take."""


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return a clause that says why the schema cannot be sent to a chat model, or an empty string if it can."""
    if schema.get("type") != "object":
        return "its input is no object"
    try:
        if len(json.dumps(schema)) > LONGEST_SCHEMA:
            return "its schema is too long"
        kind = validator_for(schema, default=Draft202012Validator)
        metaschema = _careful(kind)(kind.META_SCHEMA, format_checker=kind.FORMAT_CHECKER)
        with _at_most(_MOST_SCHEMA_STEPS):
            return "" if metaschema.is_valid(schema) else "its schema is not valid"
    except _TooManySteps:
        return "its schema is too long"
    except Exception:  # untrusted data may make the library raise any exception
        logger.debug("A schema cannot be used", exc_info=True)
        return "its schema is not valid"


def input_problems(schema: Mapping[str, Any], call_input: Mapping[str, Any]) -> str:
    """Return clauses on the invalid fields of the input, without their values.

    The string is empty if no problem is found, or if the input cannot be checked completely.
    """
    try:
        kind = _careful(validator_for(schema, default=Draft202012Validator), unchecked=_UNCHECKED)
        errors = kind(schema, registry=_registry_of(schema)).iter_errors(dict(call_input))
        with _at_most(_MOST_STEPS):
            return "; ".join(_clause(error) for error in islice(errors, _MOST_PROBLEMS))
    except (
        Exception
    ):  # too many steps, an external reference, or anything else that the schema may contain
        logger.debug("An input was not checked to its end", exc_info=True)
        return ""


def _registry_of(schema: Mapping[str, Any]) -> Registry[Any]:
    """Return a registry in which references can only lead to parts of the schema itself.

    The schema is searched for named parts once, because the library would search it again for each reference. Without a
    registry, the library would fetch references from the network.
    """
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource(resource.id() or "", resource)
    return registry.crawl()


@contextmanager
def _at_most(steps: int) -> Iterator[None]:
    """Limit the total number of steps that the checks in the block take."""
    token = _remaining.set(steps)
    try:
        yield
    finally:
        _remaining.reset(token)


@cache
def _careful(kind: Any, *, unchecked: frozenset[str] = frozenset()) -> Any:
    """Return a validator class that counts the steps of every keyword, and does not check those in `unchecked`."""
    checks = kind.VALIDATORS | {"uniqueItems": _unique_items}
    careful = extend(
        kind,
        {name: _counted(name, check, unchecked=unchecked) for name, check in checks.items()},
    )

    def evolve(validator: Any, **changes: Any) -> Any:
        schema = changes["schema"]
        _take(1 + _length(schema) // _ITEMS_PER_STEP)
        # The library would check a part that has a `$schema` with its own validator, which counts no steps.
        if isinstance(schema, dict) and "$schema" in schema:
            changes["schema"] = {name: part for name, part in schema.items() if name != "$schema"}
        return kind.evolve(validator, **changes)

    careful.evolve = evolve
    return careful


def _counted(name: str, check: Keyword, *, unchecked: frozenset[str]) -> Keyword:
    def counted(
        validator: Any, value: Any, instance: Any, schema: Any
    ) -> Iterator[ValidationError]:
        _take(1 + (_length(value) + _length(instance)) // _ITEMS_PER_STEP)
        needs_patterns = name == "additionalProperties" and "patternProperties" in schema
        if name in unchecked or (needs_patterns and "patternProperties" in unchecked):
            return
        for error in check(validator, value, instance, schema) or ():
            # The message contains the instance and the expected value, so it may be long.
            _take(len(error.message) // _CHARACTERS_PER_STEP)
            yield error

    return counted


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _take(steps: int) -> None:
    remaining = _remaining.get() - steps
    _remaining.set(remaining)
    if remaining < 0:
        raise _TooManySteps


def _unique_items(
    validator: Any, is_unique: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """Report repeated items without comparing all pairs, which the library does if it cannot sort the items."""
    if is_unique and isinstance(instance, list):
        different = {json.dumps(item, sort_keys=True) for item in instance}
        if len(different) < len(instance):
            yield ValidationError("it has items that repeat")


def _clause(error: ValidationError) -> str:
    path = ".".join(map(str, error.absolute_path)) or "input"
    if error.validator in {
        "required",
        "additionalProperties",
    }:  # their messages contain only names of properties
        return f"{_part(path)}: {_part(error.message)}"
    value = json.dumps(error.validator_value, ensure_ascii=False, default=str)
    words = _WORDS.get(str(error.validator), f"does not satisfy {error.validator} {{}}")
    return f"{_part(path)}: {words.format(_part(value))}"


def _part(text: str) -> str:
    return shortened(text, limit=_LONGEST_CLAUSE)
