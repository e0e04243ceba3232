"""Validates agents for the admin and for code, with a message for every problem."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from governance.durations import format_duration
from governance.validation import span_problem
from turns.chat_models.catalog import is_known

MOST = {
    "step_limit": 100_000,
    "max_parallel_calls": 10_000,
    "token_limit": 10**12,
    "max_tokens": 10_000_000,
    "window": 100_000_000,
}
RANGES = {"temperature": 2, "top_p": 1}  # the highest values; the lowest is 0
MOST_FALLBACKS = 5
MOST_STOP_SEQUENCES, LONGEST_STOP_SEQUENCE = 4, 64  # OpenAI accepts at most four
LONGEST_CHAT_MODEL = 200
ANSWER_LIMITS = ("first_byte_timeout_ms", "idle_timeout_ms", "request_timeout_ms")
SHORTEST_MS = 100
MOST_SAMPLES, LONGEST_SAMPLE = 4, 200
_TOOL = re.compile(r"[A-Za-z0-9_.:-]{1,128}\*?|\*")


def check_agent(values: Mapping[str, Any]) -> None:
    """Raise `ValidationError`, with messages by field, if the agent could not answer or its limits are invalid."""
    errors = dict(_problems(values))
    if errors:
        raise ValidationError({name: [problem] for name, problem in errors.items()})


def tools_problem(tools: Any) -> str:
    """Return a message about the first problem in a list of tool names; empty if there is none."""
    if tools is None:
        return ""
    if not isinstance(tools, list):
        return _("Enter a list of tool names.")
    for name in tools:
        if not isinstance(name, str) or not _TOOL.fullmatch(name):
            problem = _(
                "“%(name)s” is not a valid tool name. An asterisk is only allowed at the end."
            )
            return problem % {"name": str(name)[:60]}
    return ""


def samples_problem(samples: Any) -> str:
    """Return a message about the first problem in a list of samples; empty if there is none."""
    if not isinstance(samples, list) or not all(isinstance(text, str) for text in samples):
        return _("Enter a list of strings.")
    if len(samples) > MOST_SAMPLES:
        return _("Enter at most %(most)d samples.") % {"most": MOST_SAMPLES}
    if any(not text.strip() or len(text) > LONGEST_SAMPLE for text in samples):
        return _("Each sample must have 1 to %(most)d characters.") % {"most": LONGEST_SAMPLE}
    if not all(text.isprintable() for text in samples):
        return _("Each sample must be a single line without invisible characters.")
    return ""


def stop_sequences_problem(texts: Any) -> str:
    """Return a message about the first problem in a list of stop sequences; empty if there is none."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return _("Enter a list of strings.")
    if len(texts) > MOST_STOP_SEQUENCES:
        return _("Enter at most %(most)d stop sequences.") % {"most": MOST_STOP_SEQUENCES}
    # Anthropic rejects blank ones.
    if any(not text.strip() or len(text) > LONGEST_STOP_SEQUENCE for text in texts):
        return _("Each stop sequence must have 1 to %(most)d characters.") % {
            "most": LONGEST_STOP_SEQUENCE
        }
    return ""


def fallbacks_problem(names: Any, *, chat_model: str) -> str:
    """Return a message about the first problem in a list of fallback models; empty if there is none."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return _("Enter a list of chat model names.")
    if len(names) > MOST_FALLBACKS:
        return _("Enter at most %(most)d fallback models.") % {"most": MOST_FALLBACKS}
    if len({chat_model, *names}) <= len(names):
        return _("List each fallback model only once, and leave out the agent’s own chat model.")
    for name in names:
        if len(name) > LONGEST_CHAT_MODEL or not is_known(name):
            return _("There is no chat model named “%(name)s”.") % {"name": name[:60]}
    return ""


def _problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if values["is_default"] and not values["is_enabled"]:
        yield (
            "is_enabled",
            _("The default agent cannot be disabled. Make another agent the default first."),
        )
    yield from _chat_model_problems(values)
    if problem := tools_problem(values["tools"]):
        yield "tools", problem
    if problem := samples_problem(values["samples"]):
        yield "samples", problem
    yield from _span_problems(values)
    for name, most in MOST.items():
        value = values[name]
        if value is not None and value > most:
            yield (
                name,
                _("Values above %(most)d have no effect. Leave the field blank for no limit.")
                % {"most": most},
            )


def _chat_model_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if values["chat_model"] and not is_known(values["chat_model"]):
        problem = _(
            "There is no chat model named “%(name)s”. Enter “local”, a provider’s model such as “anthropic:claude-sonnet-5-5”, or the path of a function that returns a model."
        )
        yield "chat_model", problem % {"name": values["chat_model"][:60]}
    if problem := fallbacks_problem(values["fallback_models"], chat_model=values["chat_model"]):
        yield "fallback_models", problem
    if problem := stop_sequences_problem(values["stop_sequences"]):
        yield "stop_sequences", problem
    for name, highest in RANGES.items():
        value = values[name]
        if value is not None and not 0 <= value <= highest:
            yield name, _("Enter a number from 0 to %(highest)d.") % {"highest": highest}


def _span_problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if problem := span_problem(values["turn_timeout_ms"]):
        yield "turn_timeout_ms", problem
    for name in ANSWER_LIMITS:
        value = values[name]
        if value is not None and value < SHORTEST_MS:
            least = {"least": format_duration(SHORTEST_MS)}
            yield name, _("The minimum is %(least)s.") % least
        elif problem := span_problem(value):
            yield name, problem
