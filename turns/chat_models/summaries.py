"""Summaries: what the `local` chat model says about the results of its calls, as Markdown."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    title: str
    sentence: str
    output: str
    warning: str = ""


def summarise(results: Sequence[CallResult]) -> str:
    """Return what ran and how it ended, with short outputs quoted."""
    reports = [_report(result) for result in results]
    grouped = [list(group) for _key, group in groupby(reports, key=_what)]
    sections = [_section(group) for group in grouped[:MAX_REPORTS]]
    if (more := sum(len(group) for group in grouped[MAX_REPORTS:])) > 0:
        sections.append(
            ngettext(
                "… and %(count)d more call: see its card.",
                "… and %(count)d more calls: see their cards.",
                more,
            )
            % {"count": more}
        )
    return "\n\n".join([*_heading(results), *sections])


def _what(report: _Report) -> tuple[str, str, str]:
    return report.title, report.sentence, report.output


def _heading(results: Sequence[CallResult]) -> Iterator[str]:
    if len(results) > 1:
        good = sum(not result.is_error for result in results)
        yield _("%(good)d of %(all)d calls succeeded.") % {"good": good, "all": len(results)}


def _report(result: CallResult) -> _Report:
    content, warning = _take_warning(result.content)
    tool = code(result.tool_name)
    title = _title(result.input)
    if not result.is_error:
        sentence, output = _success(result, content)
        return _Report(title=title, sentence=sentence, output=output, warning=warning)
    first, _newline, rest = content.partition("\n")
    if denied := _DENIED.fullmatch(content):
        rest, sentence = "", _named(denied["said"], tool_name=result.tool_name)
    elif marked := _MARKED.fullmatch(first):
        sentence = _outcome(marked["sentences"], tool_name=result.tool_name)
    else:
        sentence = _("%(tool)s failed: %(reason)s") % {"tool": tool, "reason": plain(first)}
    output = quoted(rest.removeprefix(_PARTIAL_OUTPUT))
    return _Report(title=title, sentence=sentence, output=output, warning=warning)


def _success(result: CallResult, content: str) -> tuple[str, str]:
    """Return the sentence and the output; what another agent said is told as its answer, not as a program's output."""
    agent = code(str(result.input.get("agent", "")))
    if result.tool_name == _ASKED:
        return _("%(agent)s answered:") % {"agent": agent}, cited(content)
    if result.tool_name == _SPAWNED:
        return _("%(agent)s is at work; its report comes here when it is done.") % {
            "agent": agent
        }, ""
    return _("%(tool)s succeeded.") % {"tool": code(result.tool_name)}, quoted(content)


def _outcome(sentences: str, *, tool_name: str) -> str:
    """Keep what happened, leave out the advice that is meant for a model."""
    first, *others = _SENTENCE_END.split(sentences)
    told = [first, *(other for other in others if other.startswith(_ABOUT_THE_CALL))]
    return _named(" ".join(told), tool_name=tool_name)


def _named(told: str, *, tool_name: str) -> str:
    named = plain(told)
    return named.replace(plain(f'Tool "{tool_name}"'), code(tool_name), 1)


def _take_warning(content: str) -> tuple[str, str]:
    """Part the loop detector's word from the tool's own (A4)."""
    before, _newline, last = content.rpartition("\n")
    if not last.startswith(_LOOP):
        return content, ""
    return before, last.removeprefix(_LOOP)


def _title(arguments: Mapping[str, Any]) -> str:
    value = next((arguments[name] for name in MAIN_ARGUMENTS if name in arguments), None)
    if not isinstance(value, str | int | float):
        return ""
    text = f"{value:g} s" if isinstance(value, int | float) else " ".join(value.split())
    return code(text if len(text) <= _TITLE_LENGTH else f"{text[:_TITLE_LENGTH]}…") if text else ""


def _section(group: Sequence[_Report]) -> str:
    """Return one report, or several that are alike as one."""
    report = group[0]
    parts = [f"**{report.title}** — {report.sentence}" if report.title else report.sentence]
    if len(group) > 1:
        parts[0] += _(" (%(count)d times)") % {"count": len(group)}
    if report.output:
        parts.append(report.output)
    if warning := next(_warnings(group), ""):
        parts.append(_("Loop detector: %(warning)s") % {"warning": plain(warning)})
    return "\n\n".join(parts)


def _warnings(group: Iterable[_Report]) -> Iterator[str]:
    return (report.warning for report in reversed(list(group)) if report.warning)


def quoted(output: str) -> str:
    """Return an output in a fence, its end left out if it is long; nothing if it is blank."""
    if not output.strip():
        return ""
    shown, is_cut = _shortened(output)
    fence = "`" * max(3, _longest_run(shown) + 1)
    return _with_the_rest(f"{fence}text\n{shown}\n{fence}", is_cut=is_cut)


def cited(said: str) -> str:
    """Return what another agent said, its own Markdown kept, as a quotation."""
    if not said.strip():
        return ""
    shown, is_cut = _shortened(said)
    return _with_the_rest(
        "\n".join(f"> {line}".rstrip() for line in shown.split("\n")), is_cut=is_cut
    )


def _shortened(text: str) -> tuple[str, bool]:
    lines = text.strip("\n").splitlines()
    shown = "\n".join(lines[:MAX_QUOTED_LINES])
    is_cut = len(lines) > MAX_QUOTED_LINES or len(shown) > MAX_QUOTED_LENGTH
    return shown[:MAX_QUOTED_LENGTH], is_cut


def _with_the_rest(text: str, *, is_cut: bool) -> str:
    return f"{text}\n\n{_('The rest is on its card.')}" if is_cut else text


def code(text: str) -> str:
    """Return the text as inline code, whatever backticks are in it."""
    fence = "`" * (_longest_run(text) + 1)
    gap = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{gap}{text}{gap}{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def plain(text: str) -> str:
    """Return the text so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", text)
