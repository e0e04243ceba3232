"""Fallbacks: if a chat model fails before its answer has begun, the next one answers, and the person is notified."""

import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace

from turns.chat_models.catalog import get_chat_model, public_name
from turns.chat_models.failures import (
    ANOTHER_MODEL_INSTEAD,
    FALLBACK_REASONS,
    FELL_BACK,
    MODEL_INSTEAD,
    NOT_OFFERED,
    ProviderFailure,
)
from turns.core.chat_model import (
    ChatDelta,
    ChatModel,
    ChatRequest,
    Notice,
    Usage,
    context_window_of,
    media_of,
)
from turns.core.exceptions import ChatModelError
from turns.core.messages import AttachmentBlock, Block, Message, TextBlock

logger = logging.getLogger(__name__)

_NOT_FOR_THIS_MODEL = "(This file cannot be given to you, but to the model that was asked first.)"
_PDF = "application/pdf"


class FallbackChatModel:
    """The chat models of an agent, in order of preference. Create one per turn, because a fallback model that has
    taken over answers until the end of the turn.

    `media` are the types of content besides text that they accept; None means those that each model declares.
    """

    def __init__(self, names: Sequence[str], *, media: Collection[str] | None = None) -> None:
        self._names = names
        self._media = media
        self._at = 0

    @property
    def media(self) -> frozenset[str]:
        """The types of content besides text that the current model accepts."""
        return self._media_of(get_chat_model(self._names[self._at]))

    async def context_window(self) -> int | None:
        """Return the context window of the current model; None if it is unknown."""
        try:
            return await context_window_of(get_chat_model(self._names[self._at]))
        except ChatModelError:  # raised again when the model is called
            return None

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        """Stream the answer to a request. The usage of failed models is added to that of the next one.

        Raises:
            ChatModelError: the last model failed, or a model failed after its answer had begun, or for a reason that
                would make another model fail too.
        """
        usage = Usage()
        while True:
            has_begun = False
            earlier_usage = usage
            try:
                model = get_chat_model(self._names[self._at])
                async with aclosing(self._ask(model, request)) as deltas:
                    async for delta in deltas:
                        if isinstance(delta, Usage):
                            delta = usage = earlier_usage + delta
                        elif not isinstance(delta, Notice):
                            has_begun = True
                        yield delta
            except ChatModelError as error:
                reason = "" if has_begun else _reason_of(error)
                if not reason or self._at + 1 == len(self._names):
                    raise
                facts = {"chat_model": self._names[self._at], "code": error.code}
                logger.warning("Another chat model answers", extra=facts)
            else:
                return
            self._at += 1
            name = self._names[self._at]
            message = MODEL_INSTEAD if public_name(name) else ANOTHER_MODEL_INSTEAD
            yield Notice(code=FELL_BACK, message=message % {"reason": reason, "chat_model": name})

    async def _ask(self, model: ChatModel, request: ChatRequest) -> AsyncGenerator[ChatDelta, None]:
        if self._at > 0:
            media = self._media_of(model)
            messages = tuple(_without_other_media(each, media) for each in request.messages)
            request = replace(request, messages=messages)
        stream = model.stream(request)
        try:
            async for delta in stream:
                yield delta
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    def _media_of(self, model: ChatModel) -> frozenset[str]:
        return media_of(model) if self._media is None else frozenset(self._media)


def _reason_of(error: ChatModelError) -> str:
    """Return the reason for switching to another model, as the start of a sentence; empty if there must be no switch."""
    if isinstance(error, ProviderFailure):
        return FALLBACK_REASONS.get(error.kind, "")
    return str(NOT_OFFERED) if error.code == "unknown_chat_model" else ""


def _without_other_media(message: Message, media: Collection[str]) -> Message:
    """Return the message without the files that a model does not accept, because they were chosen for the first model."""
    if not message.attachments:
        return message

    def acceptable(block: Block) -> Block:
        if not isinstance(block, AttachmentBlock) or block.content is None:
            return block
        kind = "pdf" if block.media_type == _PDF else "image"
        return block if kind in media else TextBlock(text=_NOT_FOR_THIS_MODEL)

    return replace(message, content=tuple(map(acceptable, message.content)))
