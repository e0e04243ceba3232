"""Messages about invalid fields in frames and HTTP requests."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.utils.translation import gettext as _

_SENTENCES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _c: _("is missing"),
    "string_type": lambda _c: _("must be text"),
    "string_too_short": lambda _c: _("must not be empty"),
    "string_too_long": lambda c: _("must not be longer than %(max_length)s characters") % c,
    "int_type": lambda _c: _("must be a whole number"),
    "int_from_float": lambda _c: _("must be a whole number"),
    "int_parsing": lambda _c: _("must be a whole number"),
    "int_parsing_size": lambda _c: _("is too large"),
    "bool_type": lambda _c: _("must be true or false"),
    "literal_error": lambda c: _("must be %(expected)s") % {"expected": _either(c["expected"])},
    "greater_than_equal": lambda c: _("must be at least %(ge)s") % c,
    "less_than_equal": lambda c: _("must be at most %(le)s") % c,
    "nul_character": lambda _c: _("must not contain the character NUL"),
    "one_limit": lambda _c: _("give either timeout_ms or extend_ms"),
}
_AROUND = {"body", "query", "path", "payload"}


def validation_message(
    errors: Iterable[Mapping[str, Any]], *, leave_out: Iterable[str] = ()
) -> str:
    """Return a sentence that names the invalid fields and their problems, but does not repeat any input."""
    hidden = _AROUND | set(leave_out)
    parts = [_part(error, hidden) for error in errors]
    return _("Please correct: %(problems)s.") % {"problems": "; ".join(dict.fromkeys(parts))}


def _either(expected: str) -> str:
    """Return Pydantic's English list of allowed values, with the last conjunction translated."""
    first, is_more, last = expected.rpartition(" or ")
    return _("%(first)s or %(last)s") % {"first": first, "last": last} if is_more else last


def _part(error: Mapping[str, Any], hidden: set[str]) -> str:
    words = _SENTENCES.get(error["type"])
    problem = words(error.get("ctx", {})) if words else _("is not valid")
    name = ".".join(str(step) for step in error["loc"] if step not in hidden)
    return f"{name} {problem}" if name else str(problem)
