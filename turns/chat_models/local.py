"""The `local` chat model: no key, no network; it carries out a small command language with the real tools.

It keeps no state: every answer is a function of the request. The last thing that the user said is the plan, the
answers since then tell how far it has come.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from turns.chat_models.commands import Answer, CommandProblem, parse
from turns.chat_models.guide import not_understood, talk
from turns.chat_models.summaries import code, plain, quoted, summarise
from turns.core.chat_model import (
    ChatDelta,
    ChatRequest,
    Stop,
    StopReason,
    TextDelta,
    Usage,
)
from turns.core.messages import Message
from turns.core.prompt_markers import ATTACHED, HAS_ENDED, INTERRUPTED, SHOWN, SUB_AGENT, TIME_IS_UP

PAUSE = 0.08  # seconds between two words of `slowly`
_NOT_SAID = (SUB_AGENT, INTERRUPTED, ATTACHED)
_AT_ONCE = 32  # pieces between two moments in which others may work
_CHARACTERS_PER_TOKEN = 4


class LocalChatModel:
    """Carries out commands; see `help`. `sleep` makes `slowly` slow."""

    def __init__(self, *, sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep) -> None:
        self._sleep = sleep

    async def stream(self, request: ChatRequest) -> AsyncIterator[ChatDelta]:
        """Answer the request piece by piece."""
        said, most = 0, request.max_tokens or sys.maxsize
        for number, (delta, is_slow) in enumerate(compose(request).deltas()):
            if is_slow:
                await self._sleep(PAUSE)
            elif number % _AT_ONCE == 0:
                await asyncio.sleep(0)
            said += len(delta.text if isinstance(delta, TextDelta) else delta.arguments)
            yield delta
            if _tokens(said) >= most:
                break
        heard = len(request.instructions) + sum(message.size for message in request.messages)
        yield Usage(input_tokens=_tokens(heard), output_tokens=_tokens(said))
        if _tokens(said) >= most:
            yield Stop(StopReason.LENGTH)


def compose(request: ChatRequest) -> Answer:
    """Return the answer to a request: the next step of its plan, or the last word."""
    texts, since = _last_input(request.messages)
    said = "\n".join(text for text in texts if not text.startswith(_NOT_SAID))
    if said.startswith(TIME_IS_UP):
        return Answer(_report(request.messages[:-1]))
    if said.startswith(HAS_ENDED):
        return Answer((_("All right, that is over."),))
    reports = _quoted(texts, SUB_AGENT)
    if not said and (found := reports or _quoted(texts, ATTACHED)):
        return Answer(found)
    plan = _plan_of(said, request)
    done = sum(message.role == "assistant" for message in since)
    steps = len(plan) - 1
    answer = plan[min(done, steps)]
    if answer.calls:
        return answer if answer.texts else answer._replace(texts=(_announce(answer, steps),))
    opening = summarise(since) if steps else _by_the_way(texts)
    return Answer((*reports, *filter(None, [opening]), *answer.texts))


def _last_input(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """Return what was last said to the model, by the user or by sub-agents, and the messages since then."""
    for place in reversed(range(len(messages))):
        said = [block.text for block in messages[place].texts if not block.is_blank]
        texts = [text for text in said if not text.startswith(SHOWN)]
        if texts and messages[place].role == "user":
            return texts, messages[place + 1 :]
    return [], messages


def _plan_of(said: str, request: ChatRequest) -> tuple[Answer, ...]:
    """Return the answers to what was said, the last of them without calls."""
    if text := talk(said.strip(), request):
        return (Answer((text,)),)
    try:
        return parse(said) or (Answer((not_understood(),)),)
    except CommandProblem as problem:
        text = _("%(problem)s Nothing was run. Say `help` to see how it is written.")
        return (Answer((text % {"problem": problem},)),)


def _report(messages: Sequence[Message]) -> tuple[str, ...]:
    """What was done until the time was up, for whoever has given the work."""
    if done := summarise(_last_input(messages)[1]):
        return _("My time is up. This is what I have:"), done
    return (_("My time was up before anything was done."),)


def _quoted(texts: Sequence[str], mark: str) -> tuple[str, ...]:
    """Quote the reports or the files, with what is in them. Nothing of it is a command."""
    marked = [text.removeprefix(mark).strip() for text in texts if text.startswith(mark)]
    parts = [text.partition("\n") for text in marked]
    return tuple(
        f"{plain(first)}\n\n{quoted(rest, is_speech=True)}".rstrip()
        for first, _newline, rest in parts
    )


def _by_the_way(texts: Sequence[str]) -> str:
    """Return the note on an interrupted turn in words for the person; mostly nothing (H5)."""
    noted = " ".join(text for text in texts if text.startswith(INTERRUPTED))
    note = " ".join(noted.split()).removeprefix("[INTERRUPTED] ")
    return _("By the way: %(note)s") % {"note": note[:1].lower() + note[1:]} if note else ""


def _announce(answer: Answer, steps: int) -> str:
    count = len(answer.calls)
    what = ngettext("calling %(count)d tool…", "calling %(count)d tools…", count) % {"count": count}
    if count == 1:
        what = _("calling %(tool)s…") % {"tool": code(answer.calls[0].tool_name)}
    if steps == 1:
        return what[:1].upper() + what[1:]
    place = {"step": answer.step, "steps": steps, "what": what}
    return _("Step %(step)d of %(steps)d: %(what)s") % place


def _tokens(characters: int) -> int:
    """A rough count: there are no tokens here."""
    return -(-characters // _CHARACTERS_PER_TOKEN)
