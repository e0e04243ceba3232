"""Checks schemas that servers send, and inputs against them; problems are clauses.

A schema is untrusted data, so no reference is fetched, no pattern is run, and a check takes a bounded number of steps.
The server itself checks the rest.
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

LONGEST_SCHEMA = 100_000  # characters; every request to a chat model carries it
_MOST_STEPS = 20_000
_MOST_SCHEMA_STEPS = 400_000  # in a thread
_ITEMS_PER_STEP = 10  # of a list or an object: what takes as long as one keyword, with room
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
    """The schema asks for more than a check may take."""


def schema_problem(schema: Mapping[str, Any]) -> str:
    """Return a clause on why a chat model cannot get the schema; empty if it can."""
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
    except Exception:  # foreign data may raise any exception in the library
        logger.debug("A schema cannot be used", exc_info=True)
        return "its schema is not valid"


def input_problems(schema: Mapping[str, Any], call_input: Mapping[str, Any]) -> str:
    """Return a clause for each wrong field of the input, without its value; empty if all are valid."""
    try:
        kind = _careful(validator_for(schema, default=Draft202012Validator), unchecked=_UNCHECKED)
        errors = kind(schema, registry=_registry_of(schema)).iter_errors(dict(call_input))
        with _at_most(_MOST_STEPS):
            return "; ".join(_clause(error) for error in islice(errors, _MOST_PROBLEMS))
    except (
        Exception
    ):  # too many steps, a reference to elsewhere, or anything else that the schema holds
        logger.debug("An input was not checked to its end", exc_info=True)
        return ""


def _registry_of(schema: Mapping[str, Any]) -> Registry[Any]:
    """Return what references may lead to: the schema alone, searched once for names of its parts.

    The library would search it again for each reference. Without a registry it would fetch references from the network.
    """
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource(resource.id() or "", resource)
    return registry.crawl()


@contextmanager
def _at_most(steps: int) -> Iterator[None]:
    """Limit the total steps of the checks inside the block."""
    token = _remaining.set(steps)
    try:
        yield
    finally:
        _remaining.reset(token)


@cache
def _careful(kind: Any, *, unchecked: frozenset[str] = frozenset()) -> Any:
    """Return the validator with every keyword counted, and without some of them."""
    checks = kind.VALIDATORS | {"uniqueItems": _unique_items}
    careful = extend(
        kind,
        {name: _counted(name, check, unchecked=unchecked) for name, check in checks.items()},
    )

    def evolve(validator: Any, **changes: Any) -> Any:
        schema = changes["schema"]
        _take(1 + _length(schema) // _ITEMS_PER_STEP)
        # A part of a schema with a `$schema` would be checked by the library's own validator.
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
            # Its message holds the instance, and what was expected of it.
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
    """Find what repeats; the library compares each item with each other one if it cannot sort them."""
    if is_unique and isinstance(instance, list):
        different = {json.dumps(item, sort_keys=True) for item in instance}
        if len(different) < len(instance):
            yield ValidationError("it has items that repeat")


def _clause(error: ValidationError) -> str:
    path = ".".join(map(str, error.absolute_path)) or "input"
    if error.validator in {"required", "additionalProperties"}:  # these name properties only
        return f"{_part(path)}: {_part(error.message)}"
    value = json.dumps(error.validator_value, ensure_ascii=False, default=str)
    words = _WORDS.get(str(error.validator), f"does not satisfy {error.validator} {{}}")
    return f"{_part(path)}: {words.format(_part(value))}"


def _part(text: str) -> str:
    return shortened(text, limit=_LONGEST_CLAUSE)
