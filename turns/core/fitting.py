"""Leaves parts out of the prompts of one turn, so that they fit into the chat model's context window."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from governance import CancellationToken
from turns.core.chat_model import (
    ChatModel,
    ChatRequest,
    ChatSettings,
    StreamLimits,
    ToolSpec,
    context_window_of,
)
from turns.core.messages import Message
from turns.core.ports import Prompt, TurnJournal
from turns.core.prompt_changes import PromptChange
from turns.core.summary import summary_request
from turns.core.window import (
    Kept,
    apply,
    change_between,
    fitted,
    left_out,
    reserve_of,
    shrunk,
    tokens_of_prompt,
    unchanged_from,
)

_SUMMARY = 1_000  # maximum tokens of a summary
_SHORTEST = 100  # tokens; with less room, no summary is requested
_CHARACTERS = 6  # maximum per token of a summary, in case the model ignores its limit

READER = "read_result"  # the tool that returns results that were left out


class Fitting:
    """Selects the part of a turn's messages that its requests contain; the messages themselves are never changed.

    The selection is stored before the request, so that the next turn begins with the same one. `ask` returns the
    summary for a request, or an empty string if there is none.
    """

    def __init__(
        self,
        chat_model: ChatModel,
        journal: TurnJournal,
        *,
        instructions: str,
        tools: Sequence[ToolSpec],
        settings: ChatSettings,
        limits: StreamLimits | None,
        turn_id: str,
        ask: Callable[[ChatRequest], Awaitable[str]],
        tokens_left: Callable[[], int | None],
    ) -> None:
        self._limits = limits
        self._turn_id = turn_id
        self._ask = ask
        self._tokens_left = tokens_left
        self._chat_model = chat_model
        self._journal = journal
        self._settings = settings
        self._head = len(instructions) + sum(map(_length, tools))
        self._reader = READER if any(tool.name == READER for tool in tools) else ""
        self._since: str | None = None
        self._kept = Kept()
        self._window: int | None = None
        self._tokens = 0

    def begin(self, prompt: Prompt) -> None:
        """Start from the selection that the previous turn stored."""
        self._since = prompt.unchanged_from
        self._kept = prompt.kept

    @property
    def usage(self) -> dict[str, int]:
        """Return the size of the context window and how many of its tokens the conversation uses, if known."""
        if not self._window or not self._tokens:
            return {}
        return {"context_tokens": self._tokens, "context_window": self._window}

    def apply(self, messages: Sequence[Message]) -> tuple[list[Message], int]:
        """Return the messages for the model, and the index of the message since which requests were only extended at
        the end.
        """
        prompt = apply(messages, self._kept, reader=self._reader)
        return prompt, unchanged_from(messages, self._kept, self._since)

    async def fit(self, messages: Sequence[Message], *, token: CancellationToken) -> None:
        """Leave out messages and results that would not fit. Do nothing if the window is unknown; the provider may
        reject the prompt later.
        """
        self._window = self._settings.window or await self._find_window(token)
        if self._window is None or token.is_cancelled:
            return
        room = self._window - reserve_of(self._window, self._settings.max_tokens)
        selection = fitted(messages, self._kept, head=self._head, room=room, reader=self._reader)
        if selection != self._kept:
            await self._keep(messages, selection, room=room, token=token)

    async def shrink(self, messages: Sequence[Message], *, token: CancellationToken) -> bool:
        """Leave out more, because the provider rejected the prompt as too long. Return whether that was possible."""
        prompt = apply(messages, self._kept, reader=self._reader)
        room = tokens_of_prompt(prompt, head=self._head, rate=self._kept.rate)
        if self._window is not None:
            room = min(room, self._window)
        selection = shrunk(messages, self._kept, head=self._head, room=room, reader=self._reader)
        if selection == self._kept:
            return False
        await self._keep(messages, selection, room=room, token=token)
        return True

    def measure(self, messages: Sequence[Message]) -> None:
        """Record how many tokens of the window these messages use."""
        if self._window is not None:
            prompt = apply(messages, self._kept, reader=self._reader)
            self._tokens = tokens_of_prompt(prompt, head=self._head, rate=self._kept.rate)

    async def _keep(
        self, messages: Sequence[Message], selection: Kept, *, room: int, token: CancellationToken
    ) -> None:
        if change_between(messages, self._kept, selection) is PromptChange.CUT:
            prompt = apply(messages, selection, reader=self._reader)
            space = room - tokens_of_prompt(prompt, head=self._head, rate=selection.rate)
            summary = await self._summarise(
                left_out(messages, self._kept, selection),
                most=min(_SUMMARY, room // 10, space),
                room=room,
            )
            if token.is_cancelled:  # the summary may be missing only because of the cancel
                return
            if summary:
                selection = replace(selection, summary=summary, summary_turn=self._turn_id)
        await self._journal.keep(selection, change_between(messages, self._kept, selection))
        self._kept = selection

    async def _summarise(self, messages: Sequence[Message], *, most: int, room: int) -> str:
        """Return the model's summary of these messages in at most `most` tokens; empty if there is too little room."""
        budget = self._tokens_left()
        length = min(room // 2, budget - most if budget is not None else room)
        if most < _SHORTEST or length <= most:
            return ""
        request = summary_request(
            messages,
            most_characters=round(length * self._kept.rate),
            max_tokens=most,
            limits=self._limits,
        )
        return (await self._ask(request))[: most * _CHARACTERS]

    async def _find_window(self, token: CancellationToken) -> int | None:
        """Return the chat model's context window, or None if it is unknown. A cancel does not wait for the result,
        because the chat model may have to import its SDK first.
        """
        if not hasattr(self._chat_model, "context_window"):
            return None
        finding = asyncio.ensure_future(context_window_of(self._chat_model))
        try:
            with token.watched() as cancelled:
                either: set[asyncio.Future[Any]] = {finding, cancelled}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return finding.result() if finding.done() else None
        finally:
            finding.cancel()


def _length(tool: ToolSpec) -> int:
    return len(json.dumps([tool.name, tool.description, tool.input_schema], default=dict))
