"""Tools, which are functions that a model may call, with their declarations and their context (G3)."""

import asyncio
import concurrent.futures
import hashlib
import inspect
import json
import logging
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pydantic

from governance.core.calls import Progress
from governance.core.cancellation import CancellationToken, is_running_here
from governance.core.containment import contained
from governance.core.exceptions import InvalidToolInput
from governance.core.forms import AskForm, ask_nobody
from governance.core.images import Show, not_shown, show_nowhere
from governance.core.policy import (
    LIMITS,
    ApprovalRule,
    Hint,
    PolicyLevels,
    TimeoutSource,
    ToolLimits,
)
from governance.core.results import Writer

logger = logging.getLogger(__name__)

StillMine = Callable[[], Awaitable[bool]]


async def always_mine() -> bool:
    """Return True, because without leases no other process can take over the call."""
    return True


class CallOwner:
    """An object that asks the host of a call, on its event loop, whether the call still belongs to this process.

    The answer is False if the host cannot tell, or if the call was cancelled.
    """

    __slots__ = ("_ask", "_loop", "_token")

    def __init__(self, token: CancellationToken, ask: StillMine) -> None:
        self._token = token
        self._ask = ask
        self._loop = asyncio.get_running_loop()

    async def still_mine(self) -> bool:
        """Return whether the call is neither cancelled nor taken over by another process."""
        if self._token.is_cancelled:
            return False
        try:
            is_mine = await self._ask()
        except Exception:
            logger.exception("It is unknown whether a call still belongs to this process")
            return False
        return is_mine and not self._token.is_cancelled

    def still_mine_blocking(self) -> bool:
        """Return whether the call is neither cancelled nor taken over, when called from another thread."""
        if is_running_here(self._loop):
            raise RuntimeError("A coroutine awaits still_mine: this would block its own loop.")
        if self._token.is_cancelled:
            return False
        question = self.still_mine()
        try:
            asking = asyncio.run_coroutine_threadsafe(question, self._loop)
        except RuntimeError:  # the loop is closed, so the owner cannot be read
            question.close()
            return False
        forget = self._token.on_cancel(lambda _: asking.cancel())
        try:
            return asking.result()
        except concurrent.futures.CancelledError:
            return False
        finally:
            forget()


class Users(Protocol):
    """The interface through which tools look up the project's users."""

    def typed(self, user_id: Any) -> Any:
        """Restore the type of an id that was sent to a worker process as JSON."""
        ...

    async def find(self, user_id: Any) -> Any:
        """Return the user, or `None` if the user was deleted. This is for coroutine tools."""
        ...

    def find_blocking(self, user_id: Any) -> Any:
        """Return the user, or `None` if the user was deleted. This is for tools in threads and worker processes."""
        ...

    async def has_permission(self, user_id: Any, permission: str) -> bool:
        """Return whether the user has this permission now."""
        ...


class UnknownUsers:
    """The users of a program without Django. Only their ids are known, so they have no permissions."""

    def typed(self, user_id: Any) -> Any:
        """Return the id unchanged."""
        return user_id

    async def find(self, user_id: Any) -> Any:
        """Raise `LookupError`, because users cannot be looked up."""
        return self.find_blocking(user_id)

    def find_blocking(self, user_id: Any) -> Any:
        """Raise `LookupError`, because users cannot be looked up."""
        raise LookupError(
            f"Django is not set up where this tool runs: user {user_id!r} is unknown."
        )

    async def has_permission(self, user_id: Any, permission: str) -> bool:
        """Return False, because permissions are unknown here."""
        return False


class Isolation(StrEnum):
    """The place where a tool's body runs, which determines how reliably the body can be ended."""

    ASYNC = "async"  # a coroutine, which has to cooperate
    THREAD = "thread"  # a separate thread, which cannot be ended, only abandoned (T7)
    PROCESS = "process"  # a worker process, which is ended with signals to its group (T8)


class Concurrency(StrEnum):
    """The way in which a call interacts with the other calls of its scope (P2, C9)."""

    PARALLEL = "parallel"
    EXCLUSIVE = "exclusive"  # runs alone in its scope
    SUPERSEDE = "supersede"  # cancels the earlier calls of its tool


def _show_nowhere(content: bytes, _name: str) -> str:
    return not_shown(content)


@dataclass(slots=True, kw_only=True)
class ToolContext:
    """The facts and functions that are available to a running tool.

    The first parameter that is annotated with this class receives them. The asynchronous methods are for coroutines,
    and the methods that end in `_blocking` are for plain functions, in threads and worker processes. The executor sets
    every attribute. Attributes that are not listed here are internal.

    Attributes:
        call_id: the id that the model assigned to the call.
        tool_name: the name of the tool.
        scope: the opaque id of the conversation.
        token: the cancellation token, which says whether the call was cancelled, and why.
        workspace: the directory of the conversation, or `None` if the site has no workspaces.
        metadata: facts from the host. Turns pass `turn_id` and `conversation_id`.
        user_id: the primary key of the person for whom the call works, or `None` if there is no such person.
        agent: the name of the agent that made the call.
        depth: 0 for the agent that the person talks to, 1 for a sub-agent of that agent, and so on.
        time_left: a function that returns the seconds until the limit, or `None` if there is no limit or the tool runs
            in a worker process.
    """

    # Invokers call `returned` when the body returns, because that time decides whether the body was within its limit.
    # They return the value as `writer` has converted it. `report` is safe to call from any thread.

    call_id: str
    tool_name: str
    scope: str
    token: CancellationToken
    report: Callable[[Progress], None]
    workspace: Path | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    user_id: Any = None
    agent: str = ""
    depth: int = 0
    users: Users = field(default_factory=UnknownUsers)
    time_left: Callable[[], float | None] = lambda: None
    returned: Callable[..., None] = lambda *_: None
    show: Show = show_nowhere
    show_blocking: Callable[[bytes, str], str] = _show_nowhere
    ask_form: AskForm = ask_nobody
    ask_owner: StillMine = always_mine
    ask_owner_blocking: Callable[[], bool] = lambda: True
    writer: Writer = field(default_factory=partial(Writer, limit=100_000))

    async def user(self) -> Any:
        """Read the user for whom the call works from the database.

        Return `None` if the call has no user, or if the user was deleted.
        """
        return None if self.user_id is None else await self.users.find(self.user_id)

    def user_blocking(self) -> Any:
        """Read the user for whom the call works, like `user`, in a thread or a worker process."""
        return None if self.user_id is None else self.users.find_blocking(self.user_id)

    def progress(
        self,
        message: str = "",
        *,
        progress: float | None = None,
        total: float | None = None,
        output: str = "",
    ) -> None:
        """Report progress. This restarts the idle limit, and `output` is kept as a partial result (T6)."""
        self.report(Progress(message=message, progress=progress, total=total, output=output))

    async def show_image(self, content: bytes, *, name: str = "image") -> str:
        """Show an image to the person and the model.

        Return a line for the tool's result that says whether the image was stored.
        """
        return await self.show(content, name)

    def show_image_blocking(self, content: bytes, *, name: str = "image") -> str:
        """Show an image from a thread or a worker process, and wait until it is stored.

        Raises:
            Cancelled: the call was cancelled.
        """
        return self.show_blocking(content, name)

    async def still_mine(self) -> bool:
        """Return whether the call still belongs to this process.

        Call this method immediately before an effect that must not happen twice, because a process that was paused may
        have lost its turns to another process. It also returns False if the call was cancelled, or if the database does
        not respond.
        """
        return await self.ask_owner()

    def still_mine_blocking(self) -> bool:
        """Return whether the call still belongs to this process, like `still_mine`, in a thread or a worker process."""
        return self.ask_owner_blocking()

    @property
    def is_cancelled(self) -> bool:
        """Whether the call was cancelled or has run out of time."""
        return self.token.is_cancelled


_CHARACTERS_PER_TOKEN = 4
_NO_META: Mapping[str, Any] = {}
ToolFunction = Callable[..., Any]
F = TypeVar("F", bound=ToolFunction)


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that a model may call, with its declared limits and behaviour.

    Attributes:
        name: the name that the model uses.
        description: the description that the model reads.
        function: the function that calls run.
        title: the title on the card of a call; the name is always shown beside it.
        question: the question that a person is asked before a call. If it is empty, the person is asked whether the
        tool may run.
        isolation: where the function runs.
        timeout: the total limit in seconds. `None` means that the tool does not declare a limit, and 0 that its calls
        have no limit (T2, T3).
        idle_timeout: the longest time in seconds without a progress report.
        timeout_argument: the name of the parameter, in milliseconds, with which a model requests a limit for the call.
        expected_duration: how many seconds a call usually takes.
        concurrency: how a call interacts with other calls of its conversation.
        max_running: how many calls of this tool may run in a process at the same time.
        pool: the name of a pool. Tools with the same pool share `max_running`.
        server: the MCP server that the tool belongs to.
        side_effects: whether calls may have effects beyond their results. If so, the model is advised after a timeout
        or a cancel to check what the call did.
        loop_exempt: whether the loop detector ignores the tool.
        only_waits: whether the tool only waits for other calls, so that it occupies none of the process's slots.
        raw_schema: the input schema, instead of one derived from type hints.
        problems: a function that checks the input against a `raw_schema`. Without it, the input is not checked.
        render: a function that converts a result to text, if JSON is the wrong format.
        approval: whether a person must approve calls (D1). `None` means that the tool declares no rule.
        asks_for: a function that returns, from the input, whether `approval` applies to a call. Without it, `approval`
        applies to every call.
        unknown_host: a function that returns the web host that a call would connect to and that a person must approve
        first, or an empty string.
        off: a function that returns a reason to refuse every call for now, or an empty string. It runs on the event
        loop.
        permission: the permission that the person must have, as "app.codename". It may be empty.
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
    permission: str = ""
    # False if another framework passes only the function's own arguments.
    takes_meta: bool = True

    @cached_property
    def limits(self) -> ToolLimits:
        """The tool's declared limits, as one level of the policy."""
        timeout = self.timeout
        if not timeout and self._default_argument is not None:
            timeout = self._default_argument
        declared = {name: getattr(self, name) for name in LIMITS if hasattr(self, name)}
        return ToolLimits(**{**declared, "timeout": timeout})

    @cached_property
    def levels(self) -> PolicyLevels:
        """The policy levels that apply if only the tool sets limits."""
        return PolicyLevels(declared=self.limits)

    @cached_property
    def tokens(self) -> int:
        """The approximate number of tokens that the tool adds to each request that offers it."""
        return estimated_tokens(self.name, self.description, self.input_schema)

    @cached_property
    def definition(self) -> str:
        """The digest of the name, title, description and input schema, which people and models see (D4)."""
        parts = [self.name, self.description, self.input_schema, *filter(None, [self.title])]
        encoded = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(encoded.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that receives the context, or None."""
        hints = typing.get_type_hints(self.function)
        return next(
            (name for name, hint in hints.items() if hint is ToolContext and name != "return"), None
        )

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the input, which is derived from the function's type hints (G3), or the `raw_schema`."""
        if self.raw_schema is not None:
            return dict(self.raw_schema)
        schema = self._input_type.model_json_schema()
        schema.pop("title", None)
        return schema

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function expects them. Raise `InvalidToolInput`, which lists every problem."""
        if self.raw_schema is not None:
            if self.problems is not None and (problems := self.problems(arguments)):
                raise InvalidToolInput(self.name, problems)
            return dict(arguments)
        try:
            model = self._input_type.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            raise InvalidToolInput(self.name, _problems(error, names=self._field_names)) from None
        return {name: getattr(model, field_name) for name, field_name in self._field_names.items()}

    def needs_approval(self, call_input: Mapping[str, Any]) -> bool:
        """Return whether the tool's declared approval rule applies to a call with this input (D1)."""
        if self.asks_for is None:
            return True
        try:
            with contained():
                return self.asks_for(call_input)
        except Exception:  # the input may be anything, and in doubt a person is asked
            logger.exception("A tool could not tell whether it asks", extra={"tool": self.name})
            return True

    def unapproved_host(self, call_input: Mapping[str, Any]) -> str:
        """Return the web host that a person must approve before a call with this input, or an empty string."""
        return self.unknown_host(call_input) if self.unknown_host else ""

    def disabled_reason(self) -> str:
        """Return sentences that say why the tool cannot be used now, or an empty string if it can."""
        if self.off is None:
            return ""
        try:
            with contained():
                return self.off()
        except Exception:  # the body will report the error
            logger.exception("A tool could not tell whether it is off", extra={"tool": self.name})
            return ""

    def hint(self, call_input: Mapping[str, Any]) -> Hint | None:
        """Return the limit that the call itself requests: `_meta.timeout_ms` (A3) or the tool's own argument.

        Raises:
            InvalidToolInput: the hint is not a number of milliseconds ≥ 0, or has no unit (`_meta.timeout`).
        """
        raw_meta = call_input.get("_meta")
        meta = raw_meta if raw_meta and isinstance(raw_meta, Mapping) else _NO_META
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
        """The function's parameters that the model fills in."""
        parameters = inspect.signature(self.function).parameters
        return {name: parameters[name] for name in parameters if name != self.context_parameter}

    @cached_property
    def _field_names(self) -> dict[str, str]:
        """The field name of each parameter, which is cached because checking it against pydantic's names is slow."""
        return {name: _field_name(name) for name in self._parameters}

    def build(self) -> None:
        """Build the schema now, because the first one in a process reads the disk, which would block an event loop."""
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
    """Return the approximate number of tokens of a tool's definition. Providers count tokens differently."""
    encoded = json.dumps([name, description, schema], ensure_ascii=False, default=str)
    return -(-len(encoded) // _CHARACTERS_PER_TOKEN)


def _field_name(name: str) -> str:
    """Return a name for a parameter's pydantic field that is neither private nor one of pydantic's own names."""
    return f"input_{name}" if name.startswith("_") or hasattr(pydantic.BaseModel, name) else name


def _problems(error: pydantic.ValidationError, *, names: Iterable[str]) -> str:
    """Return one clause per invalid field, without the input, which may be secret or huge."""
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    clauses = [
        f"{'.'.join(str(part) for part in problem['loc']) or 'input'}: {problem['msg']}"
        for problem in problems
    ]
    if any(problem["type"] == "extra_forbidden" for problem in problems):
        clauses.append(f"it takes {', '.join(names) or 'nothing'}")
    return "; ".join(clauses)
