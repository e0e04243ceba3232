"""Determines the language of a socket's user, and translates stored sentences into it.

Events and rows contain English sentences for all readers. They are translated when they are sent.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.utils import translation

from governance.labels import tool_text
from governance.threads import own_pool
from turns.selectors.translations import is_report, sentence, work_of_sub_agent

P = ParamSpec("P")
T = TypeVar("T")

_SOURCE = "en"
_WORDS_OF_TOOLS = {"tool_title", "question"}
_OPAQUE = {"input", "arguments", "result", "result_length", "html", "partial_text", "tail"}


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking function in a thread. Unlike `asyncio.to_thread`, it keeps the caller's language."""
    pool: Any = own_pool  # asgiref's annotations allow only one type of executor
    return await sync_to_async(function, thread_sensitive=False, executor=pool)(*args, **kwargs)


def language_of(scope: Any) -> str:
    """Return the language of a socket's user. As for an HTTP request, the cookie comes first, then `Accept-Language`.

    This function reads files, so do not call it on an event loop.
    """
    request = HttpRequest()
    request.COOKIES = scope.get("cookies", {})
    headers = dict(scope.get("headers", ()))
    request.META["HTTP_ACCEPT_LANGUAGE"] = headers.get(b"accept-language", b"").decode("latin1")
    language = translation.get_language_from_request(request)
    with translation.override(language):
        return language  # `override` has loaded its catalogue


def is_source(language: str | None) -> bool:
    """Return whether stored sentences are already in this language."""
    return language is None or language.partition("-")[0] == _SOURCE


def for_reader(data: T, language: str | None = None) -> T:
    """Return a frame or response with its stored sentences translated into a language, by default the active one."""
    code = language or translation.get_language()
    if is_source(code):
        return data
    with translation.override(code):
        translated: T = _translated(data)
        return translated


def _translated(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_translated(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _field(name, part, value) for name, part in value.items()}


def _field(name: str, part: Any, around: dict[str, Any]) -> Any:
    if name in _OPAQUE:
        return part
    if not isinstance(part, str):
        return _translated(part)
    if name in _WORDS_OF_TOOLS or (name == "title" and around.get("type") == "tool_use"):
        return tool_text(part)
    if name == "message" and "tool_name" in around:
        return work_of_sub_agent(around["tool_name"], part)
    return sentence(part) if _is_sentence(name, around) else part


def _is_sentence(name: str, around: dict[str, Any]) -> bool:
    """Return whether a field contains a sentence of the server, not one of a person or a tool."""
    if name in {"message", "reason"}:  # in an error or a notice
        return "code" in around
    if name == "user_message":
        return is_report(around.get("source", ""))
    return name == "error_message" or (name == "text" and "said" in around)
