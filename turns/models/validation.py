"""What the row of an agent must satisfy; every problem in words, for the admin and for code alike."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.validation import span_problem
from turns.chat_models.catalog import is_known

MOST = {"step_limit": 100_000, "max_parallel_calls": 10_000, "token_limit": 10**12}
MOST_SAMPLES, LONGEST_SAMPLE = 4, 200
_TOOL = re.compile(r"[A-Za-z0-9_.:-]{1,128}\*?|\*")


def check_agent(values: Mapping[str, Any]) -> None:
    """Raise `ValidationError` by field for an agent that could not answer, or whose limits make no sense."""
    errors = dict(_problems(values))
    if errors:
        raise ValidationError({name: [problem] for name, problem in errors.items()})


def tools_problem(tools: Any) -> str:
    """Return what is wrong with a list of names of tools; empty if nothing is."""
    if tools is None:
        return ""
    if not isinstance(tools, list):
        return _("Write a list of names of tools.")
    for name in tools:
        if not isinstance(name, str) or not _TOOL.fullmatch(name):
            problem = _("“%(name)s” is no name of a tool. An asterisk may stand at its end only.")
            return problem % {"name": str(name)[:60]}
    return ""


def samples_problem(samples: Any) -> str:
    """Return what is wrong with a list of samples; empty if nothing is."""
    if not isinstance(samples, list) or not all(isinstance(text, str) for text in samples):
        return _("Write a list of texts.")
    if len(samples) > MOST_SAMPLES:
        return _("Write %(most)d samples at most.") % {"most": MOST_SAMPLES}
    if any(not text.strip() or len(text) > LONGEST_SAMPLE for text in samples):
        return _("Write 1 to %(most)d characters in each sample.") % {"most": LONGEST_SAMPLE}
    if not all(text.isprintable() for text in samples):
        return _("Write each sample in one line, without invisible characters.")
    return ""


def _problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if values["is_default"] and not values["is_enabled"]:
        yield (
            "is_enabled",
            _("The default agent cannot be switched off. Make another one the default first."),
        )
    if values["chat_model"] and not is_known(values["chat_model"]):
        problem = _(
            "There is no chat model named “%(name)s”. Write “local”, one of a provider such as "
            "“anthropic:claude-sonnet-5-5”, or the path of a function that returns one."
        )
        yield "chat_model", problem % {"name": values["chat_model"][:60]}
    if problem := tools_problem(values["tools"]):
        yield "tools", problem
    if problem := samples_problem(values["samples"]):
        yield "samples", problem
    if problem := span_problem(values["turn_timeout_ms"]):
        yield "turn_timeout_ms", problem
    for name, most in MOST.items():
        value = values[name]
        if value is not None and value > most:
            yield name, _("More than %(most)d is no limit; leave it blank.") % {"most": most}
