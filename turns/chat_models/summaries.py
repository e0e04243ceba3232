"""Summaries: what the `local` chat model says about the results of its calls, as Markdown."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from governance import shortened
from turns.core.messages import MAIN_ARGUMENTS

MAX_QUOTED_LINES = 15
MAX_QUOTED_LENGTH = 1_200
MAX_REPORTS = 12
_TITLE_LENGTH = 80

# Results that are written for the model begin with a mark; sentences about the call itself begin with "It".
_MARKED = re.compile(r"\[(?:TIMEOUT|CANCELLED|ERROR|INTERRUPTED|EXPIRED)\] (?P<sentences>.*)")
_DENIED = re.compile(r"\[DENIED\] (?P<said>.*)\nIt had no effect\..*", re.DOTALL)
_ASKED, _SPAWNED = "sessions_ask", "sessions_spawn"
_ABOUT_THE_CALL = "It "
_LOOP = "[LOOP] "
_PARTIAL_OUTPUT = "Partial output before it was ended:\n"
_SENTENCE_END = re.compile(r"(?<=[.!?]) +")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """A call and the text that came back."""

    tool_name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    content: str = ""
    is_error: bool = False


class _Report(NamedTuple):
    title: str
    sentence: str
    output: str


def summarise(results: Sequence[CallResult]) -> str:
    """Return what ran and how it ended, with short outputs quoted."""
    told = [_report(result) for result in results]
    grouped = [list(group) for _report, group in groupby(told, key=itemgetter(0))]
    sections = [_section(group) for group in grouped[:MAX_REPORTS]]
    if len(results) > 1:
        good = sum(not result.is_error for result in results)
        counted = {"good": good, "all": len(results)}
        sections.insert(0, _("%(good)d of %(all)d calls succeeded.") % counted)
    if more := sum(map(len, grouped[MAX_REPORTS:])):
        rest = ngettext(
            "… and %(count)d more call: see its card.",
            "… and %(count)d more calls: see their cards.",
            more,
        )
        sections.append(rest % {"count": more})
    return "\n\n".join(sections)


def _report(result: CallResult) -> tuple[_Report, str]:
    """Return what is said of a call, and the loop detector's warning behind its result (A4)."""
    content, _newline, warning = result.content.rpartition("\n")
    if not warning.startswith(_LOOP):
        content, warning = result.content, ""
    sentence, output = (_failure if result.is_error else _success)(result, content)
    return _Report(_title(result.input), sentence, output), warning.removeprefix(_LOOP)


def _failure(result: CallResult, content: str) -> tuple[str, str]:
    """Return the sentence and the output that there was."""
    first, _newline, rest = content.partition("\n")
    if denied := _DENIED.fullmatch(content):
        return _named(denied["said"], tool_name=result.tool_name), ""
    if marked := _MARKED.fullmatch(first):
        sentence = _outcome(marked["sentences"], tool_name=result.tool_name)
    else:
        said = {"tool": code(result.tool_name), "reason": plain(first)}
        sentence = _("%(tool)s failed: %(reason)s") % said
    return sentence, quoted(rest.removeprefix(_PARTIAL_OUTPUT))


def _success(result: CallResult, content: str) -> tuple[str, str]:
    """Return the sentence and the output; what another agent said is told as its answer, not as a program's output."""
    agent = {"agent": code(str(result.input.get("agent", "")))}
    if result.tool_name == _ASKED:
        return _("%(agent)s answered:") % agent, cited(content)
    if result.tool_name == _SPAWNED:
        return _("%(agent)s is at work; its report comes here when it is done.") % agent, ""
    return _("%(tool)s succeeded.") % {"tool": code(result.tool_name)}, quoted(content)


def _outcome(sentences: str, *, tool_name: str) -> str:
    """Keep what happened, leave out the advice that is meant for a model."""
    first, *others = _SENTENCE_END.split(sentences)
    told = [first, *(other for other in others if other.startswith(_ABOUT_THE_CALL))]
    return _named(" ".join(told), tool_name=tool_name)


def _named(told: str, *, tool_name: str) -> str:
    named = plain(told)
    return named.replace(plain(f'Tool "{tool_name}"'), code(tool_name), 1)


def _title(arguments: Mapping[str, Any]) -> str:
    value = next((arguments[name] for name in MAIN_ARGUMENTS if name in arguments), None)
    if not isinstance(value, str | int | float):
        return ""
    text = f"{value:g} s" if isinstance(value, int | float) else " ".join(value.split())
    return code(shortened(text, limit=_TITLE_LENGTH)) if text else ""


def _section(group: Sequence[tuple[_Report, str]]) -> str:
    """Return one report, or several that are alike as one, with the last warning."""
    (title, sentence, output), _warning = group[0]
    head = f"**{title}** — {sentence}" if title else sentence
    if len(group) > 1:
        head += _(" (%(count)d times)") % {"count": len(group)}
    parts = [head, output]
    if warning := next((said for _report, said in reversed(group) if said), ""):
        parts.append(_("Loop detector: %(warning)s") % {"warning": plain(warning)})
    return "\n\n".join(filter(None, parts))


def quoted(output: str) -> str:
    """Return an output in a fence, its end left out if it is long; nothing if it is blank."""
    shown, rest = _shortened(output)
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}text\n{shown}\n{fence}{rest}" if shown else ""


def cited(said: str) -> str:
    """Return what another agent said, its own Markdown kept, as a quotation."""
    shown, rest = _shortened(said)
    lines = (f"> {line}".rstrip() for line in shown.split("\n"))
    return "\n".join(lines) + rest if shown else ""


def _shortened(text: str) -> tuple[str, str]:
    """Return the beginning of a text, and the hint at the rest of it."""
    if not text.strip():
        return "", ""
    lines = text.strip("\n").splitlines()
    shown = "\n".join(lines[:MAX_QUOTED_LINES])
    is_cut = len(lines) > MAX_QUOTED_LINES or len(shown) > MAX_QUOTED_LENGTH
    return shown[:MAX_QUOTED_LENGTH], f"\n\n{_('The rest is on its card.')}" if is_cut else ""


def code(text: str) -> str:
    """Return the text as inline code, whatever backticks are in it."""
    fence = "`" * (_longest_run(text) + 1)
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{gap}{text}{gap}{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0) if "`" in text else 0


def plain(text: str) -> str:
    """Return the text so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", text)
