"""The language of a reader: which one a socket's user wants, and stored sentences in it.

What the log and the rows hold is the same for everybody: sentences in English. They are translated on their way out.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.utils import translation

from governance.labels import tool_text
from turns.selectors.translations import is_report, sentence, work_of_sub_agent

P = ParamSpec("P")
T = TypeVar("T")

_SOURCE = "en"
_WORDS_OF_TOOLS = {"tool_title", "question"}
_OPAQUE = {"input", "result", "result_length", "html", "partial_text", "tail"}


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function that blocks; unlike `asyncio.to_thread` it speaks the caller's language."""
    return await sync_to_async(function, thread_sensitive=False)(*args, **kwargs)


def language_of(scope: Any) -> str:
    """Return the language of a socket's user, found as for a request: the cookie, then what the browser asks for.

    It reads files, so it does not belong on an event loop.
    """
    request = HttpRequest()
    request.COOKIES = scope.get("cookies", {})
    headers = dict(scope.get("headers", ()))
    request.META["HTTP_ACCEPT_LANGUAGE"] = headers.get(b"accept-language", b"").decode("latin1")
    language = translation.get_language_from_request(request)
    with translation.override(language):
        return language  # its catalogue has been read


def is_source(language: str | None) -> bool:
    """Return whether stored sentences are in this language already."""
    return language is None or language.partition("-")[0] == _SOURCE


def for_reader(data: T, language: str | None = None) -> T:
    """Return a frame or an answer with its stored sentences in a language; None = the active one."""
    chosen = language or translation.get_language()
    if is_source(chosen):
        return data
    with translation.override(chosen):
        translated: T = _translated(data)
        return translated


def _translated(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_translated(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _field(name, held, value) for name, held in value.items()}


def _field(name: str, held: Any, around: dict[str, Any]) -> Any:
    if name in _OPAQUE:
        return held
    if not isinstance(held, str):
        return _translated(held)
    if name in _WORDS_OF_TOOLS or (name == "title" and around.get("type") == "tool_use"):
        return tool_text(held)
    if name == "message" and "tool_name" in around:
        return work_of_sub_agent(around["tool_name"], held)
    return sentence(held) if _is_sentence(name, around) else held


def _is_sentence(name: str, around: dict[str, Any]) -> bool:
    """Whether a field holds a sentence of the server, and none of a person or a tool."""
    if name in {"message", "reason"}:  # of an error or a notice
        return "code" in around
    if name == "user_message":
        return is_report(around.get("source", ""))
    return name == "error_message" or (name == "text" and "said" in around)
