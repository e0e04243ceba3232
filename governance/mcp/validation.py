"""Rules for the row of an MCP server; each problem is a sentence for the admin and for code."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.mcp.specs import Transport
from governance.validation import span_problem

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PREFIX = re.compile(r"[A-Za-z0-9_-]*")


def check_server(values: Mapping[str, Any]) -> None:
    """Raise `ValidationError` by field for a server that could not be connected as it stands."""
    errors = dict(_problems(values))
    if errors:
        raise ValidationError({name: [problem] for name, problem in errors.items()})


def _problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if values["transport"] == Transport.STDIO:
        yield from _command_problems(values)
    else:
        yield from _url_problems(values)
    yield from _name_problems(values)
    if problem := span_problem(values["timeout_ms"]):
        yield "timeout_ms", problem
    if not _PREFIX.fullmatch(values["prefix"]):
        yield "prefix", _("Only letters, digits, “_” and “-” may stand in the name of a tool.")


def _command_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(values["command"])
    except ValueError:
        yield "command", _("A quotation mark is not closed.")
        return
    if not words or "\0" in values["command"]:
        yield "command", _("Write the program and its arguments; no shell reads them.")


def _url_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        url = urlsplit(values["url"])
        is_address = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        yield "url", _("Write an address that begins with http:// or https://.")
    elif "@" in url.netloc:
        yield "url", _("Leave user name and password out, and name a header below instead.")


def _name_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not _is_texts(values["environment"]) or not all(
        map(_VARIABLE.fullmatch, values["environment"])
    ):
        yield "environment", _("Write names of environment variables, one in each line.")
    headers: Any = values["headers"]
    if not isinstance(headers, dict) or not all(
        isinstance(variable, str) and _HEADER.fullmatch(header) and _VARIABLE.fullmatch(variable)
        for header, variable in headers.items()
    ):
        yield (
            "headers",
            _("Write “Header: VARIABLE”, one in each line; the value stays in the environment."),
        )
    if not _is_texts(values["allowed_tools"]):
        yield "allowed_tools", _("Write names of the server's tools, one in each line.")
    if values["read_only_tools"] is not None and not _is_texts(values["read_only_tools"]):
        yield "read_only_tools", _("Write names of the server's tools, one in each line.")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)
