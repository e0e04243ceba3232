"""Summaries: what the `local` chat model says about the results of its calls, as Markdown."""

import re
from collections.abc import Sequence
from itertools import groupby

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance import shortened
from turns.core.messages import MAIN_ARGUMENTS, Message, ToolResultBlock, ToolUseBlock

MAX_QUOTED_LINES = 15
MAX_QUOTED_LENGTH = 1_200
MAX_REPORTS = 12
_TITLE_LENGTH = 80

# Results that are written for the model begin with a mark; sentences about the call itself begin with "It".
_MARKED = re.compile(r"\[(?:TIMEOUT|CANCELLED|ERROR|INTERRUPTED|EXPIRED)\] (.*)")
_DENIED = re.compile(r"\[DENIED\] (.*)\nIt had no effect\..*", re.DOTALL)
_LOOP = re.compile(r"\n\[LOOP\] (.*)\Z")


def summarise(since: Sequence[Message]) -> str:
    """Return what ran since the user spoke and how it ended, with short outputs quoted."""
    calls = {call.id: call for message in since for call in message.tool_uses}
    results = [result for message in since for result in message.tool_results]
    outcomes = groupby(results, key=lambda result: _outcome(calls[result.tool_use_id], result))
    groups = [(told, list(alike)) for told, alike in outcomes]
    counted = {"good": sum(not each.is_error for each in results), "all": len(results)}
    paragraphs = [_("%(good)d of %(all)d calls succeeded.") % counted] if len(results) > 1 else []
    for (title, sentence, output), alike in groups[:MAX_REPORTS]:
        times = _(" (%(count)d times)") % {"count": len(alike)} if len(alike) > 1 else ""
        paragraphs += [title + sentence + times, output]
        if warnings := [said for each in alike for said in _LOOP.findall(each.content)]:
            paragraphs.append(_("Loop detector: %(warning)s") % {"warning": plain(warnings[-1])})
    if more := sum(len(alike) for _told, alike in groups[MAX_REPORTS:]):
        rest = ngettext(
            "… and %(count)d more call: see its card.",
            "… and %(count)d more calls: see their cards.",
            more,
        )
        paragraphs.append(rest % {"count": more})
    return "\n\n".join(filter(None, paragraphs))


def _outcome(call: ToolUseBlock, result: ToolResultBlock) -> tuple[str, str, str]:
    """Return the title of a call, how it ended, and its output; advice for a model is left out."""
    content = _LOOP.sub("", result.content)
    value = next((call.input[name] for name in MAIN_ARGUMENTS if name in call.input), "")
    text = f"{value:g} s" if isinstance(value, int | float) else " ".join(str(value).split())
    title = f"**{code(shortened(text, limit=_TITLE_LENGTH))}** — " if text else ""
    names = {"tool": code(call.name), "agent": code(str(call.input.get("agent", "")))}
    if result.is_error:
        return title, *_failure(call.name, content)
    if call.name == "sessions_ask":
        return title, _("%(agent)s answered:") % names, quoted(content, is_speech=True)
    if call.name == "sessions_spawn":
        return title, _("%(agent)s is at work; its report comes here when it is done.") % names, ""
    return title, _("%(tool)s succeeded.") % names, quoted(content)


def _failure(tool_name: str, content: str) -> tuple[str, str]:
    first, _newline, rest = content.partition("\n")
    if denied := _DENIED.fullmatch(content):
        told, rest = denied[1], ""
    elif marked := _MARKED.fullmatch(first):
        begun, *others = re.split(r"(?<=[.!?]) +", marked[1])
        told = " ".join([begun, *(each for each in others if each.startswith("It "))])
    else:
        reason = {"tool": code(tool_name), "reason": plain(first)}
        return _("%(tool)s failed: %(reason)s") % reason, quoted(rest)
    sentence = plain(told).replace(plain(f'Tool "{tool_name}"'), code(tool_name), 1)
    return sentence, quoted(rest.removeprefix("Partial output before it was ended:\n"))


def quoted(text: str, *, is_speech: bool = False) -> str:
    """Return the beginning of an output in a fence, or of what another agent said as a quotation."""
    if not text.strip():
        return ""
    whole = "\n".join(text.strip("\n").splitlines())
    shown = "\n".join(whole.split("\n")[:MAX_QUOTED_LINES])[:MAX_QUOTED_LENGTH]
    rest = f"\n\n{_('The rest is on its card.')}" if shown != whole else ""
    if is_speech:
        return "\n".join(f"> {line}".rstrip() for line in shown.split("\n")) + rest
    fence = _backticks(shown, least=3)
    return f"{fence}text\n{shown}\n{fence}{rest}"


def code(text: str) -> str:
    """Return the text as inline code, whatever backticks are in it."""
    fence = _backticks(text)
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{gap}{text}{gap}{fence}"


def _backticks(text: str, *, least: int = 1) -> str:
    """Return a fence that does not occur in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def plain(text: str) -> str:
    """Return the text so that Markdown shows it as it is."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", text)
