"""Summaries: what the `local` chat model says about the results of its calls, as Markdown."""

import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance import shortened
from turns.core.messages import MAIN_ARGUMENTS, Message, ToolResultBlock, ToolUseBlock

MAX_QUOTED_LINES = 15
MAX_QUOTED_LENGTH = 1_200
MAX_REPORTS = 12
_TITLE_LENGTH = 80

# Results that are written for the model begin with a mark; sentences about the call itself begin with "It".
_MARKED = re.compile(r"\[(?:TIMEOUT|CANCELLED|ERROR|INTERRUPTED|EXPIRED)\] (?P<sentences>.*)")
_DENIED = re.compile(r"\[DENIED\] (?P<said>.*)\nIt had no effect\..*", re.DOTALL)
_LOOP = re.compile(r"\n\[LOOP\] (.*)\Z")
_PARTIAL_OUTPUT = "Partial output before it was ended:\n"
_SENTENCE_END = re.compile(r"(?<=[.!?]) +")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


def summarise(since: Sequence[Message]) -> str:
    """Return what ran since the user spoke and how it ended, with short outputs quoted."""
    uses = {use.id: use for message in since for use in message.tool_uses}
    results = [
        each for message in since for each in message.tool_results if each.tool_use_id in uses
    ]
    outcomes = [_outcome(uses[result.tool_use_id], result) for result in results]
    groups = [list(group) for _same, group in groupby(outcomes, key=itemgetter(0, 1))]
    sections = [_section(group) for group in groups[:MAX_REPORTS]]
    if len(results) > 1:
        counted = {"good": sum(not each.is_error for each in results), "all": len(results)}
        sections.insert(0, _("%(good)d of %(all)d calls succeeded.") % counted)
    if more := sum(map(len, groups[MAX_REPORTS:])):
        rest = ngettext(
            "… and %(count)d more call: see its card.",
            "… and %(count)d more calls: see their cards.",
            more,
        )
        sections.append(rest % {"count": more})
    return "\n\n".join(sections)


def _section(group: Sequence[tuple[str, str, str]]) -> str:
    """Return what is told of calls that ended alike, once, with the last warning."""
    head, output, _warning = group[0]
    if len(group) > 1:
        head += _(" (%(count)d times)") % {"count": len(group)}
    warning = next((said for _head, _output, said in reversed(group) if said), "")
    return "\n\n".join(filter(None, (head, output, warning)))


def _outcome(call: ToolUseBlock, result: ToolResultBlock) -> tuple[str, str, str]:
    """Return how a call ended, its output, and the loop detector's warning behind its result (A4)."""
    content, *said = _LOOP.split(result.content)
    warning = _("Loop detector: %(warning)s") % {"warning": plain(said[0])} if said else ""
    agent = {"agent": code(str(call.input.get("agent", "")))}
    if result.is_error:
        sentence, output = _failure(call.name, content)
    elif call.name == "sessions_ask":
        sentence, output = _("%(agent)s answered:") % agent, cited(content)
    elif call.name == "sessions_spawn":  # its result is advice for a model
        sentence = _("%(agent)s is at work; its report comes here when it is done.") % agent
        output = ""
    else:
        sentence = _("%(tool)s succeeded.") % {"tool": code(call.name)}
        output = quoted(content)
    return _title(call) + sentence, output, warning


def _failure(tool_name: str, content: str) -> tuple[str, str]:
    """Return what happened, and the output that there was; advice for a model is left out."""
    first, _newline, rest = content.partition("\n")
    if denied := _DENIED.fullmatch(content):
        told, rest = denied["said"], ""
    elif marked := _MARKED.fullmatch(first):
        begun, *others = _SENTENCE_END.split(marked["sentences"])
        told = " ".join((begun, *(other for other in others if other.startswith("It "))))
    else:
        reason = {"tool": code(tool_name), "reason": plain(first)}
        return _("%(tool)s failed: %(reason)s") % reason, quoted(rest)
    sentence = plain(told).replace(plain(f'Tool "{tool_name}"'), code(tool_name), 1)
    return sentence, quoted(rest.removeprefix(_PARTIAL_OUTPUT))


def _title(call: ToolUseBlock) -> str:
    value = next((call.input[name] for name in MAIN_ARGUMENTS if name in call.input), "")
    text = f"{value:g} s" if isinstance(value, int | float) else " ".join(str(value).split())
    return f"**{code(shortened(text, limit=_TITLE_LENGTH))}** — " if text else ""


def quoted(output: str) -> str:
    """Return an output in a fence, its end left out if it is long; nothing if it is blank."""
    shown, rest = _cut(output)
    fence = _backticks(shown, least=3)
    return f"{fence}text\n{shown}\n{fence}{rest}" if shown else ""


def cited(said: str) -> str:
    """Return what another agent said, its own Markdown kept, as a quotation."""
    shown, rest = _cut(said)
    lines = (f"> {line}".rstrip() for line in shown.split("\n"))
    return "\n".join(lines) + rest if shown else ""


def _cut(text: str) -> tuple[str, str]:
    """Return the beginning of a text, and the hint at the rest of it."""
    lines = text.strip("\n").splitlines() if text.strip() else []
    shown = "\n".join(lines[:MAX_QUOTED_LINES])
    is_cut = len(lines) > MAX_QUOTED_LINES or len(shown) > MAX_QUOTED_LENGTH
    return shown[:MAX_QUOTED_LENGTH], f"\n\n{_('The rest is on its card.')}" if is_cut else ""


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
    return _SPECIAL.sub(r"\\\1", text)
