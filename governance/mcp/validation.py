"""Validates the rows of MCP servers. Each problem is a sentence, for the admin and for code that saves a server."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.conf import app_settings
from governance.mcp.specs import Transport
from governance.validation import span_problem

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PREFIX = re.compile(r"[A-Za-z0-9_-]*")


def check_server(values: Mapping[str, Any]) -> None:
    """Raise `ValidationError`, with messages by field, if a server cannot be connected with these values."""
    errors = dict(_problems(values))
    if errors:
        raise ValidationError({name: [problem] for name, problem in errors.items()})


def unlisted(variables: Iterable[str]) -> list[str]:
    """Return those of the environment variables that MCP servers may not receive, in order and without duplicates."""
    allowlist = app_settings.valid("MCP_VARIABLES")
    return [name for name in dict.fromkeys(variables) if name not in allowlist]


def _problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if values["transport"] == Transport.STDIO:
        yield from _command_problems(values)
    else:
        yield from _url_problems(values)
    yield from _name_problems(values)
    if problem := span_problem(values["timeout_ms"]):
        yield "timeout_ms", problem
    if not _PREFIX.fullmatch(values["prefix"]):
        yield "prefix", _("Use only letters, digits, “_” and “-” in the names of tools.")


def _command_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(values["command"])
    except ValueError:
        yield "command", _("A quotation mark is not closed.")
        return
    if not words or "\0" in values["command"]:
        yield "command", _("Enter the program and its arguments. It runs without a shell.")


def _url_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        url = urlsplit(values["url"])
        is_address = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        yield "url", _("Enter an address that begins with http:// or https://.")
    elif "@" in url.netloc:
        yield "url", _("Leave out the user name and password. Add a header below instead.")


def _name_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not _is_texts(values["environment"]) or not all(
        map(_VARIABLE.fullmatch, values["environment"])
    ):
        yield "environment", _("Enter names of environment variables, one per line.")
    elif problem := _unlisted_problem(values["environment"]):
        yield "environment", problem
    headers: Any = values["headers"]
    if not isinstance(headers, dict) or not all(
        isinstance(variable, str) and _HEADER.fullmatch(header) and _VARIABLE.fullmatch(variable)
        for header, variable in headers.items()
    ):
        yield (
            "headers",
            _("Enter one “Header: VARIABLE” per line. The value stays in the environment."),
        )
    elif problem := _unlisted_problem(headers.values()):
        yield "headers", problem
    if not _is_texts(values["allowed_tools"]):
        yield "allowed_tools", _("Enter names of the server's tools, one per line.")
    if values["read_only_tools"] is not None and not _is_texts(values["read_only_tools"]):
        yield "read_only_tools", _("Enter names of the server's tools, one per line.")


def _unlisted_problem(variables: Iterable[str]) -> str:
    if not (names := unlisted(variables)):
        return ""
    problem = _(
        "MCP servers may not receive the variable “%(name)s”. To allow it, the operator of this site must add it to "
        "GOVERNANCE_MCP_VARIABLES."
    )
    return problem % {"name": names[0][:60]}


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
