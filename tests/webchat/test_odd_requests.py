"""Anything may stand in a request: every endpoint and page answers it, and none by an error of the server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DataError
from django.db.backends.utils import CursorWrapper
from django.test import AsyncClient

from webchat.api import api

HUGE = "9" * 30
NUL, HALF = "%00", "%ED%A0%80"  # half of a pair of characters
IN_PATH = (NUL, HALF, HUGE, "..%2F..", "%FF", "x" * 300)
IN_QUERY = (NUL, HALF, HUGE, f"-{HUGE}", "1e400", "NaN", "%D9%A3", "")
IN_BODY: tuple[Any, ...] = (
    "\x00", "\ud800", int(HUGE), -1, 1e308, None, [], {}, ["\x00"], "x" * 300, "2026-02-30", True, 2**63,
)  # fmt: skip
BODIES = ("", "null", "[]", "7", '"\\ud800"', '{"text": NaN}', "[" * 5_000, "{", '{"\\u0000": 1}')
PAGES = ("/", "/login/", "/c/new/", "/c/new/{id}/", "/c/{id}/", "/c/{id}/recent/", "/metrics")
ASKED_OF_PAGES = ("agent", "search", "page", "next", "scope")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in api.get_openapi_schema()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def fields_of(operation: dict[str, Any]) -> set[str]:
    """The fields of the body of an operation."""
    schemas = api.get_openapi_schema()["components"]["schemas"]
    found: set[str] = set()
    open_: list[Any] = [operation.get("requestBody", {})]
    while open_:
        match open_.pop():
            case {"$ref": str(name)}:
                open_.append(schemas[name.rpartition("/")[2]])
            case {"properties": dict(properties)}:
                found |= properties.keys()
            case dict(inner):
                open_ += inner.values()
            case list(inner):
                open_ += inner
    return found


def filled(path: str, known: dict[str, str]) -> str:
    for name, value in known.items():
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.fixture
def odd_client(user_client) -> AsyncClient:
    user_client.raise_request_exception = False
    return user_client


@pytest.fixture
async def known(conversation, user_client) -> dict[str, str]:
    """Ids for a path that lead somewhere, as far as one is there."""
    some_id = str(conversation.id)
    names = ("tool_id", "attachment_id", "conversation_id", "id")
    address = f"/api/conversations/{some_id}/messages"
    body = {"client_id": "known", "text": "say hi"}
    said = await user_client.post(address, data=body, content_type="application/json")
    return {**dict.fromkeys(names, some_id), "turn_id": said.json()["turn_id"]}


@pytest.fixture(autouse=True)
def _as_strict_as_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the character NUL in a text, whatever the database."""
    execute = CursorWrapper._execute

    def execute_strictly(cursor: Any, sql: str, params: Any = None, *more: Any) -> Any:
        values = params.values() if isinstance(params, dict) else params or ()
        if any(isinstance(value, str) and "\0" in value for value in values):
            raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        return execute(cursor, sql, params, *more)

    monkeypatch.setattr(CursorWrapper, "_execute", execute_strictly)


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    list(operations()),
    ids=lambda it: it.get("operationId") if isinstance(it, dict) else "",
)
async def test_no_endpoint_stumbles_over_what_it_is_sent(
    odd_client, known, method, path, operation
):
    sent: list[tuple[str, str | None]] = []
    usual = {"text": "hello", "client_id": "c1", "decision": "deny", "timeout_ms": 1_000}
    taken = {name: value for name, value in usual.items() if name in fields_of(operation)}
    whole = json.dumps(taken) if "requestBody" in operation else None
    parameters = operation.get("parameters", [])
    for name, where in ((each["name"], each["in"]) for each in parameters):
        if where == "path":
            sent += [(filled(path, {name: odd} | known | {name: odd}), whole) for odd in IN_PATH]
        else:
            sent += [(f"{filled(path, known)}?{name}={odd}", None) for odd in IN_QUERY]
    for name in sorted(fields_of(operation)):
        sent += [(filled(path, known), json.dumps({**usual, name: odd})) for odd in IN_BODY]
    if "requestBody" in operation:
        sent += [(filled(path, known), body) for body in BODIES]
    call, stumbled = getattr(odd_client, method), set()
    for address, body in sent:
        more = {} if body is None else {"data": body, "content_type": "application/json"}
        if (await call(address, **more)).status_code >= 500:
            stumbled.add((address, body))
    assert sent or not parameters
    assert stumbled == set()


@pytest.mark.parametrize("page", PAGES)
async def test_no_page_stumbles_over_its_address(odd_client, known, page):
    addresses = [filled(page, {"id": odd}) for odd in IN_PATH if "{id}" in page]
    addresses += [
        f"{filled(page, known)}?{name}={odd}" for name in ASKED_OF_PAGES for odd in IN_QUERY
    ]
    stumbled = [it for it in addresses if (await odd_client.get(it)).status_code >= 500]
    assert stumbled == []
