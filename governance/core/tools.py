"""Tools: functions a model may ask for, and what they declare about themselves (G3)."""

import hashlib
import inspect
import json
import logging
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from governance.core.calls import Progress
from governance.core.cancellation import CancellationToken
from governance.core.containment import contained
from governance.core.exceptions import InvalidToolInput
from governance.core.images import Show, not_shown, show_nowhere
from governance.core.policy import (
    LIMITS,
    ApprovalRule,
    Hint,
    PolicyLevels,
    TimeoutSource,
    ToolLimits,
)

logger = logging.getLogger(__name__)


class Isolation(StrEnum):
    """Where a tool's body runs, and so how surely it can be ended."""

    ASYNC = "async"  # a coroutine: cooperative
    THREAD = "thread"  # an own thread: cannot be ended, only abandoned (T7)
    PROCESS = "process"  # a worker process: its group is ended with signals (T8)


class Concurrency(StrEnum):
    """How a call gets along with the other calls of its scope (P2, C9)."""

    PARALLEL = "parallel"
    EXCLUSIVE = "exclusive"  # it runs alone in its scope
    SUPERSEDE = "supersede"  # it cancels the earlier calls of its tool


def _show_nowhere(content: bytes, _name: str) -> str:
    return not_shown(content)


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """A running tool's view of its call: the first parameter annotated with this class.

    `scope` is the conversation as an opaque id, `workspace` its directory or None, `metadata` facts from the host.
    `report` is safe to call from any thread. Invokers call `returned` at the moment of the body's return, which
    decides whether that was in time. `show` is there for coroutines, `show_blocking` for threads and worker processes.
    """

    call_id: str
    tool_name: str
    scope: str
    token: CancellationToken
    report: Callable[[Progress], None]
    workspace: Path | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    time_left: Callable[[], float | None] = lambda: None
    returned: Callable[..., None] = lambda *_: None
    show: Show = show_nowhere
    show_blocking: Callable[[bytes, str], str] = _show_nowhere

    def progress(
        self,
        message: str = "",
        *,
        progress: float | None = None,
        total: float | None = None,
        output: str = "",
    ) -> None:
        """Report that the call is alive, and its progress; `output` is kept as its partial result (T6)."""
        self.report(Progress(message=message, progress=progress, total=total, output=output))

    async def show_image(self, content: bytes, *, name: str = "image") -> str:
        """Show people and chat models an image. Return the line for the result that says what became of it."""
        return await self.show(content, name)

    def show_image_blocking(self, content: bytes, *, name: str = "image") -> str:
        """Do the same in a plain function, in a thread or a worker process. Raise `Cancelled` at a cancel of the call."""
        return self.show_blocking(content, name)

    @property
    def is_cancelled(self) -> bool:
        return self.token.is_cancelled


_CHARACTERS_PER_TOKEN = 4
_NO_META: Mapping[str, Any] = {}
ToolFunction = Callable[..., Any]
F = TypeVar("F", bound=ToolFunction)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that a model may call, with its declared limits and behaviour.

    `title` is what people read instead of the name. It is the author's word, so the name is never hidden behind it.
    `question` is what they are asked where a person must approve, empty = whether the tool may run. `timeout` in
    seconds: None = undeclared, 0 = no framework limit (T2, T3). `timeout_argument` names the function's own parameter
    (milliseconds) that serves as the call's limit. `loop_exempt` exempts it from the loop detector. A tool that
    `only_waits`, for calls that need slots themselves, takes no slot of the process. With a `raw_schema`, `problems`
    validates the input; without, the input is not checked. `server` names its MCP server. Tools of one `pool` share
    `max_running`. `render` makes the text of a value for which JSON is wrong.

    `approval` says whether a person must approve calls (D1), None = undeclared. `asks_for` selects by input the calls
    that it covers, None = all. `unknown_host` returns the host that a call would reach and that a person must approve
    first, empty = none. `off` returns sentences on why every call is refused now, empty = none; it runs on the event
    loop.
    """

    name: str
    description: str
    function: ToolFunction
    title: str = ""
    question: str = ""
    isolation: Isolation = Isolation.ASYNC
    timeout: float | None = None
    idle_timeout: float | None = None
    timeout_argument: str | None = None
    expected_duration: float | None = None
    concurrency: Concurrency = Concurrency.PARALLEL
    max_running: int | None = None
    pool: str = ""
    server: str = ""
    side_effects: bool = False
    loop_exempt: bool = False
    only_waits: bool = False
    raw_schema: Mapping[str, Any] | None = None
    problems: Callable[[Mapping[str, Any]], str] | None = None
    render: Callable[[Any], str] | None = None
    approval: ApprovalRule | None = None
    asks_for: Callable[[Mapping[str, Any]], bool] | None = None
    unknown_host: Callable[[Mapping[str, Any]], str] | None = None
    off: Callable[[], str] | None = None

    @cached_property
    def limits(self) -> ToolLimits:
        """What the tool declares, as one level of the policy."""
        timeout = self.timeout
        if not timeout and self._default_argument is not None:
            timeout = self._default_argument
        declared = {name: getattr(self, name) for name in LIMITS if hasattr(self, name)}
        return ToolLimits(**{**declared, "timeout": timeout})

    @cached_property
    def levels(self) -> PolicyLevels:
        """The levels of the policy where nobody but the tool sets limits."""
        return PolicyLevels(declared=self.limits)

    @cached_property
    def tokens(self) -> int:
        """About how many tokens the tool takes of each request that offers it."""
        return estimated_tokens(self.name, self.description, self.input_schema)

    @cached_property
    def definition(self) -> str:
        """The digest of what people and models see of the tool: name, title, description, schema of the input (D4)."""
        seen = [self.name, self.description, self.input_schema, *filter(None, [self.title])]
        written = json.dumps(seen, sort_keys=True, default=str)
        return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that receives the context, if the function wants one."""
        hints = typing.get_type_hints(self.function)
        return next(
            (name for name, hint in hints.items() if hint is ToolContext and name != "return"), None
        )

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the input, made from the function's type hints (G3)."""
        if self.raw_schema is not None:
            return dict(self.raw_schema)
        schema = self._input_type.model_json_schema()
        schema.pop("title", None)
        return schema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function takes them. Raise `InvalidToolInput` with every problem."""
        if self.raw_schema is not None:
            if self.problems is not None and (found := self.problems(arguments)):
                raise InvalidToolInput(self.name, found)
            return dict(arguments)
        try:
            model = self._validator.validate_python(dict(arguments))
        except pydantic.ValidationError as error:
            raise InvalidToolInput(self.name, _problems(error)) from None
        return {name: getattr(model, field_name) for name, field_name in self._field_names.items()}

    def needs_approval(self, call_input: Mapping[str, Any]) -> bool:
        """Return whether what the tool declares of approval is meant for a call with this input (D1)."""
        if self.asks_for is None:
            return True
        try:
            with contained:
                return self.asks_for(call_input)
        except Exception:  # the input may be anything: when in doubt, a person is asked
            logger.exception("A tool could not tell whether it asks", extra={"tool": self.name})
            return True

    def unapproved_host(self, call_input: Mapping[str, Any]) -> str:
        """Return the host that a person must approve before a call with this input; empty = none."""
        return self.unknown_host(call_input) if self.unknown_host else ""

    def disabled_reason(self) -> str:
        """Return sentences on why the tool cannot be used now; empty if it can."""
        if self.off is None:
            return ""
        try:
            with contained:
                return self.off()
        except Exception:  # the body will say what is wrong
            logger.exception("A tool could not tell whether it is off", extra={"tool": self.name})
            return ""

    def hint(self, call_input: Mapping[str, Any]) -> Hint | None:
        """Return the limit that the call itself asks for: `_meta.timeout_ms` (A3) or the tool's own argument.

        Raises:
            InvalidToolInput: the hint is not a number of milliseconds ≥ 0, or has no unit (`_meta.timeout`).
        """
        given = call_input.get("_meta")
        meta = given if given and isinstance(given, Mapping) else _NO_META
        if "timeout" in meta:
            raise InvalidToolInput(
                self.name, "_meta.timeout has no unit; write _meta.timeout_ms, in milliseconds"
            )
        if meta.get("timeout_ms") is not None:
            return Hint(timeout=self._seconds(meta["timeout_ms"], "_meta.timeout_ms"))
        if self.timeout_argument is not None and call_input.get(self.timeout_argument) is not None:
            seconds = self._seconds(call_input[self.timeout_argument], self.timeout_argument)
            return Hint(timeout=seconds, source=TimeoutSource.ARGUMENT)
        return None

    @cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        """The function's parameters that are the model's to fill."""
        parameters = inspect.signature(self.function).parameters
        return {name: parameters[name] for name in parameters if name != self.context_parameter}

    @cached_property
    def _field_names(self) -> dict[str, str]:
        """The name of each parameter's field; pydantic's own names are slow to look up."""
        return {name: _field_name(name) for name in self._parameters}

    def build(self) -> None:
        """Build the schema now. The first one of a process reads the disk, which must not happen on an event loop."""
        if not self.input_schema or self.context_parameter == "":
            raise ValueError(f"The tool {self.name!r} has no schema.")

    @cached_property
    def _default_argument(self) -> float | None:
        if self.timeout_argument is None:
            return None
        default = inspect.signature(self.function).parameters[self.timeout_argument].default
        return default / 1000 if isinstance(default, int) else None

    def _seconds(self, value: Any, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise InvalidToolInput(self.name, f"{name} must be a number of milliseconds ≥ 0")
        return value / 1000

    @cached_property
    def _validator(self) -> Any:
        """What `model_validate` asks in the end; what pydantic checks besides takes a third of its time."""
        return self._input_type.__pydantic_validator__

    @cached_property
    def _input_type(self) -> type[pydantic.BaseModel]:
        hints = typing.get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            default = ... if parameter.default is parameter.empty else parameter.default
            if (field_name := self._field_names[name]) != name:
                default = pydantic.Field(
                    default, alias=name, title=name.replace("_", " ").strip().title()
                )
            fields[field_name] = (hints.get(name, Any), default)
        config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False)
        return pydantic.create_model(f"{self.name}_input", __config__=config, **fields)


def estimated_tokens(name: str, description: str, schema: Mapping[str, Any]) -> int:
    """Return the approximate number of tokens of a tool's definition; providers count differently."""
    written = json.dumps([name, description, schema], ensure_ascii=False, default=str)
    return -(-len(written) // _CHARACTERS_PER_TOKEN)


def _field_name(name: str) -> str:
    """The parameter's name as a pydantic field's, which may not be private nor a name that pydantic itself uses."""
    return f"input_{name}" if name.startswith("_") or hasattr(pydantic.BaseModel, name) else name


def _problems(error: pydantic.ValidationError) -> str:
    """One clause for each field at fault, without repeating the input (it may be secret or huge)."""
    clauses = (
        f"{'.'.join(str(part) for part in problem['loc']) or 'input'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    )
    return "; ".join(clauses)
