"""The context window: how many tokens a prompt needs, and which parts of it are left out if it does not fit.

All functions are pure. The rows keep every message; a `Kept` describes the part that prompts still contain.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from turns.core.messages import AttachmentBlock, Message, TextBlock, ToolResultBlock
from turns.core.prompt_changes import PromptChange
from turns.core.texts import CLEARED, READ_AGAIN, SUMMARY

WHOLE_TURNS = 3  # number of latest turns whose results are cleared only if leaving out earlier turns is not enough

_ANSWER = 2_000  # tokens reserved for an answer if the agent does not limit it
_ATTACHMENT = 1_500  # estimated tokens of an attachment, until the next usage shows the real number
_RATE = 3.0  # characters per token until a provider has counted some; low, so that estimates are too high, not too low
_RATES = (1.0, 6.0)  # the lowest and the highest rate
_TURN_ID = 8  # characters of a turn's id that distinguish it in one conversation
_ID_SEPARATOR = "."  # does not occur in the ids of calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The messages that prompts still contain: the turns from `turn` on, with whole results from `result_turn` on.

    In `result_turn`, the first `steps` messages with results are cleared too. An empty id means all messages, and so
    does the id of a turn that is no longer in the history.

    `summary` replaces the earlier turns. It is stored with the turn `summary_turn`, which wrote it.

    The usage of answers up to the message `seen` of the turn `seen_turn` refers to a longer prompt; `rate` is the
    number of characters per token derived from it.
    """

    turn: str = ""
    result_turn: str = ""
    steps: int = 0
    seen_turn: str = ""
    seen: int = 0
    rate: float = _RATE
    summary_turn: str = ""
    summary: str = ""

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "summary"}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        return cls(**{name: raw[name] for name in cls.__dataclass_fields__ if name in raw})


KEEP_ALL = Kept()


def reserve_of(window: int, max_tokens: int | None = None) -> int:
    """Return the number of tokens of a window that are reserved for the answer."""
    return min(max_tokens or _ANSWER, window // 8)


def tokens_of_prompt(messages: Sequence[Message], *, head: int, rate: float = _RATE) -> int:
    """Return the approximate number of tokens of a prompt: the provider's count at the last answer, plus an estimate of
    the messages after it.

    `head` is the number of characters before the messages. `rate` is used if the provider has counted no answer yet.
    """
    count, rest, characters = _counted_and_rest(messages, head)
    if rest and count:
        rate = rate_of(messages, head=head, default=rate)
    return count + _estimate(rest, head=characters, rate=rate)


def rate_of(messages: Sequence[Message], *, head: int, default: float = _RATE) -> float:
    """Return the number of characters per token, derived from the last counted answer."""
    place = _counted(messages)
    if place is None:
        return default
    before = messages[: place + 1]
    tokens = _tokens_with(messages[place]) - _ATTACHMENT * _attachments(before)
    characters = head + sum(message.size for message in before)
    low, high = _RATES
    return min(max(characters / tokens, low), high) if tokens > 0 else low


def apply(messages: Sequence[Message], selection: Kept, *, reader: str = "") -> list[Message]:
    """Return the part of a valid history that the model reads, which is a valid history as well.

    `reader` is the name of the tool with which the model can read a cleared result.
    """
    if selection == KEEP_ALL:
        return list(messages)
    first = _beginnings(messages).get(selection.turn, 0)
    cleared = _clear_before(messages, selection)
    outdated = _seen_before(messages, selection)
    names = _tool_names(messages)
    prompt = []
    for place in range(first, len(messages)):
        message = messages[place]
        if place < cleared and message.tool_results:
            message = _without_results(message, names[place], reader)
        elif place < outdated and message.usage:
            message = replace(message, usage=None)
        prompt.append(message)
    if first and selection.summary:
        block = TextBlock(text=f"{SUMMARY}\n{selection.summary}")
        prompt[0] = replace(prompt[0], content=(block, *prompt[0].content))
    return prompt


def left_out(messages: Sequence[Message], before: Kept, after: Kept) -> list[Message]:
    """Return the messages in the prompt of `before` whose turns are not in the prompt of `after`."""
    beginnings = _beginnings(messages)
    first, later = (beginnings.get(selection.turn, 0) for selection in (before, after))
    return apply(messages, before)[: max(later - first, 0)]


def fitted(
    messages: Sequence[Message], selection: Kept, *, head: int, room: int, reader: str = ""
) -> Kept:
    """Return the `Kept` with which the prompt, without the answer, fits into `room` tokens. Return `selection` if the
    prompt fits already.

    `messages` is a whole valid history. Old results are removed first, then the oldest turns, then results of the
    running turn. This happens in large steps, because the provider cannot use its cache after a step. The newest
    message stays whole.
    """
    prompt = apply(messages, selection, reader=reader)
    count, rest, characters = _counted_and_rest(prompt, head)
    # Most prompts are far smaller. The highest estimate shows that without the length of each message.
    if count + _estimate(rest, head=characters, rate=_RATES[0]) <= room:
        return selection
    if tokens_of_prompt(prompt, head=head, rate=selection.rate) <= room:
        return selection
    return shrunk(messages, selection, head=head, room=room, reader=reader)


def shrunk(
    messages: Sequence[Message], selection: Kept, *, head: int, room: int, reader: str = ""
) -> Kept:
    """Return a `Kept` that keeps less than `selection`, regardless of the estimated size. Return `selection` if no more
    can be left out.
    """
    rate = rate_of(apply(messages, selection, reader=reader), head=head, default=selection.rate)

    def tokens(choice: Kept) -> int:
        return _estimate(apply(messages, choice, reader=reader), head=head, rate=rate)

    def first_place(choice: Kept, most: int) -> int:
        """Return the first index from which the prompt has at most `most` tokens."""
        place = len(messages)
        characters, files = head, 0
        for message in reversed(apply(messages, choice, reader=reader)):
            characters, files = characters + message.size, files + len(message.attachments)
            if round(characters / rate) + _ATTACHMENT * files > most:
                return place
            place -= 1
        return place

    before = tokens(selection)
    for choice, goal in _choices(messages, selection, room=room, first_place=first_place):
        if tokens(choice) <= min(goal, before - 1):
            return _seen_now(messages, replace(choice, rate=rate))
    last = _least(messages, selection)
    return _seen_now(messages, replace(last, rate=rate)) if tokens(last) < before else selection


def change_between(messages: Sequence[Message], before: Kept, after: Kept) -> PromptChange:
    """Return the kind of change between two selections, the second of which keeps less."""
    beginnings = _beginnings(messages)
    if beginnings.get(after.turn, 0) == beginnings.get(before.turn, 0):
        return PromptChange.CLEAR
    return PromptChange.SUMMARY if after.summary else PromptChange.CUT


def unchanged_from(messages: Sequence[Message], selection: Kept, since: str | None) -> int:
    """Return the index in the applied prompt from which requests were only extended at the end.

    `since` is the id of the turn since which requests were only extended; None means the first turn.
    """
    if since is None and selection == KEEP_ALL:
        return 0
    first = _beginnings(messages).get(selection.turn, 0)
    turns = [message.turn_id for message in messages]
    begin = 0 if since is None else turns.index(since) if since in turns else len(turns)
    return max(begin, _seen_before(messages, selection), first) - first


def _choices(
    messages: Sequence[Message],
    selection: Kept,
    *,
    room: int,
    first_place: Callable[[Kept, int], int],
) -> Iterator[tuple[Kept, int]]:
    """Yield the choices of what to keep, the largest first, each with its maximum number of tokens."""
    beginnings = _beginnings(messages)
    first = beginnings.get(selection.turn, 0)
    turns = [turn for turn, place in beginnings.items() if place >= first]
    if not turns:
        return
    cleared = selection
    if len(turns) > WHOLE_TURNS:
        recent = turns[-WHOLE_TURNS]
        if beginnings[recent] > _clear_before(messages, selection):
            cleared = replace(selection, result_turn=recent, steps=0)
            yield cleared, room * 3 // 4
    place = first_place(cleared, room // 2)
    if cut := next((turn for turn in turns[1:] if beginnings[turn] >= place), ""):
        yield _cut(cleared, cut), room // 2
    newest = _cut(cleared, turns[-1])
    yield newest, room
    steps = _steps(messages[beginnings[turns[-1]] :])
    for count in range(1, steps + 1):
        yield (
            replace(newest, result_turn=turns[-1], steps=count),
            room // 2 if count < steps else room,
        )


def _least(messages: Sequence[Message], selection: Kept) -> Kept:
    beginnings = _beginnings(messages)
    if not beginnings:
        return selection
    turn = list(beginnings)[-1]
    steps = _steps(messages[beginnings[turn] :])
    return replace(_cut(selection, turn), result_turn=turn, steps=steps)


def _cut(selection: Kept, turn: str) -> Kept:
    """Return a `Kept` that starts at this turn. If it drops further turns, it has no summary, because the old one does
    not cover them.
    """
    return (
        selection
        if selection.turn == turn
        else replace(selection, turn=turn, summary="", summary_turn="")
    )


def _seen_now(messages: Sequence[Message], selection: Kept) -> Kept:
    turn = list(_beginnings(messages))[-1]
    return replace(selection, seen_turn=turn, seen=len(messages) - _beginnings(messages)[turn])


def _seen_before(messages: Sequence[Message], selection: Kept) -> int:
    begin = _beginnings(messages).get(selection.seen_turn)
    return 0 if begin is None else begin + selection.seen


def _beginnings(messages: Sequence[Message]) -> dict[str, int]:
    """Return the index at which each turn begins, in order. A turn whose first message contains results of the previous
    turn is left out.
    """
    places: dict[str, int] = {}
    turn_ids: set[str] = set()
    for place, message in enumerate(messages):
        turn = message.turn_id
        if turn and turn not in turn_ids:
            turn_ids.add(turn)
            if message.role == "user" and not message.tool_results:
                places[turn] = place
    return places


def _steps(messages: Sequence[Message]) -> int:
    """Return the number of messages with results, without the newest message."""
    return sum(bool(message.tool_results) for message in messages[:-1])


def _clear_before(messages: Sequence[Message], selection: Kept) -> int:
    """Return the index of the first message whose results are kept whole. Those of the newest message always are."""
    begin = _beginnings(messages).get(selection.result_turn)
    if begin is None:
        return 0
    with_results = [
        place for place in range(begin, len(messages) - 1) if messages[place].tool_results
    ][: selection.steps]
    return with_results[-1] + 1 if with_results else begin


def _tool_names(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Return, for each message, the tool names of the calls in the message before it, by call id. There is not one map
    for all messages, because later turns may use an id again.
    """
    calls = [{call.id: call.name for call in message.tool_uses} for message in messages]
    return [{}, *calls][: len(messages)]


def _without_results(message: Message, names: Mapping[str, str], reader: str) -> Message:
    content = tuple(
        _cleared(block, names, result_id(message.turn_id or "", block.tool_use_id), reader)
        if isinstance(block, ToolResultBlock)
        else block
        for block in message.content
        if not (isinstance(block, AttachmentBlock) and block.tool_use_id)
    )
    return replace(message, content=content)


def _cleared(
    block: ToolResultBlock, names: Mapping[str, str], id: str, reader: str
) -> ToolResultBlock:
    line = CLEARED % {
        "tool": names.get(block.tool_use_id, "a tool"),
        "length": f"{len(block.content):,}",
    }
    if reader:
        line += READ_AGAIN % {"reader": reader, "id": id}
    return replace(block, content=line) if len(line) < len(block.content) else block


def result_id(turn_id: str, call_id: str) -> str:
    """Return the id of a result within its conversation; calls of other turns may have the same id."""
    return f"{turn_id[:_TURN_ID]}{_ID_SEPARATOR}{call_id}"


def parts_of_result_id(id: str) -> tuple[str, str]:
    """Return the parts of a result's id: the beginning of the turn's id, which is empty if there is none, and the
    call's id.
    """
    turn_id, _separator, call_id = id.partition(_ID_SEPARATOR)
    return (turn_id, call_id) if len(turn_id) == _TURN_ID else ("", call_id)


def _counted(messages: Sequence[Message]) -> int | None:
    """Return the index of the last answer that took a single request and has a token count. The count of a repeated
    request includes its prompt twice.
    """
    for place in range(len(messages) - 1, -1, -1):
        usage = messages[place].usage or {}
        if usage.get("input_tokens") and usage.get("requests", 1) <= 1:
            return place
    return None


def _counted_and_rest(messages: Sequence[Message], head: int) -> tuple[int, Sequence[Message], int]:
    """Return the tokens that the provider has counted, and the messages and characters that it has not."""
    place = _counted(messages)
    if place is None:
        return 0, messages, head
    return _tokens_with(messages[place]), messages[place + 1 :], 0


def _tokens_with(message: Message) -> int:
    usage = message.usage or {}
    return int(usage.get("input_tokens", 0)) + int(usage.get("output_tokens", 0))


def _attachments(messages: Sequence[Message]) -> int:
    return sum(len(message.attachments) for message in messages)


def _estimate(messages: Sequence[Message], *, head: int, rate: float) -> int:
    characters = head + sum(message.size for message in messages)
    return round(characters / rate) + _ATTACHMENT * _attachments(messages)
