"""Forms that a running tool shows to a person.

The text of a form is untrusted, so its length is limited, and forms that ask for secrets are refused.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as with_default
from datetime import date, datetime
from itertools import islice
from typing import Any, Literal, cast, get_args

from typing_extensions import TypedDict

from governance.core.excerpts import shortened

LONGEST_ANSWER = 4_000  # characters of one field
_LONGEST_MESSAGE = 2_000
_LONGEST_NAME = 200
_LONGEST_TEXT = 500
_LONGEST_SEARCHED = 2_000
_NO_SECRETS = "it asks for a password or another secret"
_MOST_FIELDS = 20
_MOST_OPTIONS = 100
_SECRET = re.compile(
    r"passw(?:or[dt])?|passphrase|kennwort|\bpwd\b|secret|geheim|credential|token|api[\s_-]?key|private[\s_-]?key"
    r"|\bpin\b|\btan\b|\botp\b|\bcvv\b|\bcvc\b|card[\s_-]?number|security[\s_-]?code|\bssn\b",
    re.IGNORECASE,
)
# "Do not enter your PIN" does not ask for a PIN.
_WARNING = re.compile(
    r"\b(?:do not|don[’']t|never) (?:enter|give|include|provide|send|share|tell|type|write)\b[^.;:!?)]*",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"[^\s@]{1,200}@[^\s@]{1,200}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:\S+")


Kind = Literal["text", "number", "integer", "boolean", "choice", "choices"]
Format = Literal["", "email", "uri", "date", "date-time"]


class FormRefused(Exception):
    """The form is not shown. `reason` is a clause that is safe to show."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class FormOption(TypedDict):
    """A value that a choice field offers."""

    value: str
    title: str


class FormField(TypedDict):
    """A field of a form. `minimum` and `maximum` limit a number, the length of a string or the number of choices."""

    name: str
    title: str
    description: str
    kind: Kind
    required: bool
    format: Format
    default: Any
    options: list[FormOption]
    minimum: float | None
    maximum: float | None


class Form(TypedDict):
    """A form: a message, and the fields to fill in. Without fields, the person only accepts or declines it."""

    message: str
    fields: list[FormField]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormAnswer:
    """The answer to a form: a person accepted it with `answers` or declined it, or neither happened (`cancel`)."""

    action: Literal["accept", "decline", "cancel"]
    answers: Mapping[str, Any] = with_default(default_factory=dict)


AskForm = Callable[[Form], Awaitable[FormAnswer]]
"""A function that shows a form to a person and returns the answer. It raises `FormRefused` if the form is not shown."""


async def ask_nobody(_form: Form) -> FormAnswer:
    """Refuse every form."""
    raise FormRefused("nobody can be asked here")


def read_form(message: str, schema: Mapping[str, Any]) -> Form:
    """Return the form for an elicitation schema of MCP.

    Raise `FormRefused` if the schema is not an object with simple properties, or if the form asks for a secret.
    """
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise FormRefused("the form is no object with fields")
    if not isinstance(required, list) or len(properties) > _MOST_FIELDS:
        raise FormRefused(f"the form has more than {_MOST_FIELDS} fields or is not valid")
    names = {name for name in islice(required, _MOST_FIELDS + 1) if isinstance(name, str)}
    if not names <= set(properties):
        raise FormRefused("the form requires fields that it does not have")
    fields = [_field(name, part, name in names) for name, part in properties.items()]
    if any(field["kind"] == "text" for field in fields) and _names_secret(message):
        raise FormRefused(_NO_SECRETS)
    return {"message": shortened(message.strip(), limit=_LONGEST_MESSAGE), "fields": fields}


def read_answers(
    form: Form, raw_answers: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the valid answers, and a clause for each field whose answer is invalid."""
    fields = {field["name"]: field for field in form["fields"]}
    answers: dict[str, Any] = {}
    problems = {
        shortened(str(name), limit=_LONGEST_NAME): "is no field of the form"
        for name in islice((name for name in raw_answers if name not in fields), _MOST_FIELDS)
    }
    for name, field in fields.items():
        value = raw_answers.get(name)
        if value is None or (value == "" and not field["required"]):
            if field["required"]:
                problems[name] = "is required"
        elif problem := next(_CHECKS[field["kind"]](value, field), ""):
            problems[name] = problem
        else:
            answers[name] = value
    return answers, problems


def _field(name: str, part: Any, is_required: bool) -> FormField:  # noqa: FBT001 - read from a schema
    if not isinstance(part, dict) or not name or len(name) > _LONGEST_NAME:
        raise FormRefused("a field of the form is not valid")
    title, description = _text(part, "title"), _text(part, "description")
    format = part.get("format", "")
    if _names_secret(f"{_spaced(name)} {title} {description} {format}"):
        raise FormRefused(_NO_SECRETS)
    if not isinstance(format, str) or format not in get_args(Format):
        raise FormRefused("a field of the form has a format that is not known here")
    kind, options = _kind(part)
    low, high = _BOUNDS[kind]
    field: FormField = {
        "name": name,
        "title": title or name,
        "description": description,
        "kind": kind,
        "required": is_required,
        "format": cast(Format, format) if kind == "text" else "",
        "default": None,
        "options": options,
        "minimum": _number(part.get(low)),
        "maximum": _number(part.get(high)),
    }
    default = part.get("default")
    if default is not None and not any(_CHECKS[kind](default, field)):
        field["default"] = default
    return field


def _kind(part: Mapping[str, Any]) -> tuple[Kind, list[FormOption]]:
    match part.get("type"):
        case "string":
            options = _options(part, "oneOf")
            return ("choice", options) if options else ("text", [])
        case "array":
            items = part.get("items")
            options = _options(items, "anyOf", "oneOf") if isinstance(items, dict) else []
            if not options:
                raise FormRefused("a field of the form is a list without choices")
            return "choices", options
        case "number":
            return "number", []
        case "integer":
            return "integer", []
        case "boolean":
            return "boolean", []
    raise FormRefused("a field of the form is of a type that is not known here")


def _options(part: Mapping[str, Any], *titled: str) -> list[FormOption]:
    values = part.get("enum")
    if isinstance(values, list):
        names = part.get("enumNames")
        titles = names if isinstance(names, list) and len(names) == len(values) else values
        pairs: Iterator[tuple[Any, Any]] = zip(values, titles, strict=True)
    else:
        items: list[Any] = next(
            (part[name] for name in titled if isinstance(part.get(name), list)), []
        )
        pairs = iter([(it.get("const"), it.get("title")) for it in items if isinstance(it, dict)])
    options: list[FormOption] = []
    for value, title in islice(pairs, _MOST_OPTIONS + 1):
        if not isinstance(value, str) or not value or len(value) > _LONGEST_TEXT:
            raise FormRefused("a choice of the form is not valid")
        label = title if isinstance(title, str) and title else value
        options.append({"value": value, "title": shortened(label, limit=_LONGEST_TEXT)})
    if len(options) > _MOST_OPTIONS:
        raise FormRefused(f"a field of the form has more than {_MOST_OPTIONS} choices")
    return options


def _text(part: Mapping[str, Any], name: str) -> str:
    value = part.get(name, "")
    return shortened(value.strip(), limit=_LONGEST_TEXT) if isinstance(value, str) else ""


def _names_secret(text: str) -> bool:
    return _SECRET.search(_WARNING.sub("", text[:_LONGEST_SEARCHED])) is not None


def _spaced(name: str) -> str:
    """Separate the words of a name with spaces, so that `userPin` is recognized as a request for a PIN."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 2**53 else None


Check = Callable[[Any, FormField], Iterator[str]]


def _text_problems(value: Any, field: FormField) -> Iterator[str]:
    if not isinstance(value, str):
        yield "must be a text"
        return
    yield from _length_problems(len(value), field, "characters")
    if len(value) > LONGEST_ANSWER:
        yield f"must have at most {LONGEST_ANSWER} characters"
    elif value and not _FORMAT_CHECKS.get(field["format"], bool)(value):
        yield _FORMAT_WORDS[field["format"]]


def _number_problems(value: Any, field: FormField) -> Iterator[str]:
    if _number(value) is None:
        yield "must be a number"
    elif field["kind"] == "integer" and value != int(value):
        yield "must be a whole number"
    elif field["minimum"] is not None and value < field["minimum"]:
        yield f"must be at least {field['minimum']:g}"
    elif field["maximum"] is not None and value > field["maximum"]:
        yield f"must be at most {field['maximum']:g}"


def _boolean_problems(value: Any, _field: FormField) -> Iterator[str]:
    if not isinstance(value, bool):
        yield "must be true or false"


def _choice_problems(value: Any, field: FormField) -> Iterator[str]:
    if value not in [option["value"] for option in field["options"]]:
        yield "must be one of the choices"


def _choices_problems(value: Any, field: FormField) -> Iterator[str]:
    if not isinstance(value, list) or len(value) > _MOST_OPTIONS:
        yield "must be a list of choices"
        return
    values = [option["value"] for option in field["options"]]
    if not all(item in values for item in value) or any(value.count(item) > 1 for item in value):
        yield "must be different ones of the choices"
    yield from _length_problems(len(value), field, "choices")


def _length_problems(length: int, field: FormField, what: str) -> Iterator[str]:
    if field["minimum"] is not None and length < field["minimum"]:
        yield f"must have at least {field['minimum']:g} {what}"
    if field["maximum"] is not None and length > field["maximum"]:
        yield f"must have at most {field['maximum']:g} {what}"


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2026-01-31")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return "T" in text


_FORMAT_CHECKS: Mapping[str, Callable[[str], object]] = {
    "email": _ADDRESS.fullmatch,
    "uri": _SCHEME.fullmatch,
    "date": _is_date,
    "date-time": _is_time,
}
_FORMAT_WORDS = {
    "email": "must be an e-mail address",
    "uri": "must be a web address",
    "date": "must be a date such as 2026-01-31",
    "date-time": "must be a time such as 2026-01-31T12:00:00Z",
}
_CHECKS: Mapping[str, Check] = {
    "text": _text_problems,
    "number": _number_problems,
    "integer": _number_problems,
    "boolean": _boolean_problems,
    "choice": _choice_problems,
    "choices": _choices_problems,
}
_BOUNDS = {
    "text": ("minLength", "maxLength"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
    "boolean": ("", ""),
    "choice": ("", ""),
    "choices": ("minItems", "maxItems"),
}
