"""Validity: the rules that a history must keep for a provider to accept it, checked (H1)."""

from collections.abc import Iterator, Sequence

from turns.core.messages import Message, ToolResultBlock, ToolUseBlock


def violations(messages: Sequence[Message]) -> list[str]:
    """Return one sentence for each broken rule; an empty list means that the history is valid."""
    found: list[str] = []
    asked: tuple[str, ...] = ()
    for index, message in enumerate(messages):
        found += (f"message {index}: {problem}" for problem in _problems(message, asked=asked))
        asked = tuple(call.id for call in message.tool_uses)
    if asked:
        found.append(f"the end: no results for {', '.join(asked)}")
    return found


def _problems(message: Message, *, asked: tuple[str, ...]) -> Iterator[str]:
    if message.is_empty:
        yield "says nothing"
    if message.role == "assistant":
        yield from _assistant_problems(message, asked=asked)
    else:
        yield from _user_problems(message, asked=asked)


def _assistant_problems(message: Message, *, asked: tuple[str, ...]) -> Iterator[str]:
    if asked:
        yield f"follows calls without results: {', '.join(asked)}"
    if message.tool_results:
        yield "an assistant cannot give tool results"
    calls = message.tool_uses
    if message.content[len(message.content) - len(calls) :] != calls:
        yield "something stands behind a tool call"
    if len({call.id for call in calls}) < len(calls):
        yield "the same call id twice"
    for call in calls:
        if not call.is_answerable:
            yield f"call {call.id!r} is not whole"


def _user_problems(message: Message, *, asked: tuple[str, ...]) -> Iterator[str]:
    if message.tool_uses:
        yield "a user cannot call tools"
    answered = tuple(result.tool_use_id for result in message.tool_results)
    if answered != asked:
        yield f"results for ({', '.join(answered)}) where ({', '.join(asked)}) were asked for"
    if not _results_lead(message):
        yield "a result stands behind a text"


def _results_lead(message: Message) -> bool:
    is_no_result = [
        not isinstance(block, ToolResultBlock)
        for block in message.content
        if not isinstance(block, ToolUseBlock)
    ]
    return sorted(is_no_result) == is_no_result
