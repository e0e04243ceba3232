"""Reads of governance: calls of groups, the health of a scope, and the tools that are offered."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import starmap
from typing import Any, NamedTuple

from django.db.models import CharField, Count, Expression, Max, Min, QuerySet, Subquery

from governance import tool_reports
from governance.core.calls import OPEN_STATUSES, RUNNING_STATUSES, CallStatus, ErrorType
from governance.core.policy import ToolLimits, cap, resolve
from governance.core.registry import registry
from governance.core.tools import Tool, estimated_tokens
from governance.mcp.specs import ServerSpec
from governance.mcp_servers.store import readable_spec
from governance.models import DefaultPolicy, McpServer, ToolCall
from governance.policies import read_policies
from governance.prepared_statements import Select, Several, fields_of
from governance.sanitize import sanitize_text
from governance.tool_reports import ReportedTool

# The row of a call, for the types of those who may read it but not import the models.
CallRow = ToolCall

_BATCH_SIZE = 1_024
_GROUPS = Several(CharField())
_offered_once: ContextVar["list[list[OfferedTool]] | None"] = ContextVar(
    "offered tools of a request", default=None
)


class CallResult(NamedTuple):
    """What a call that has ended came to."""

    group: str
    call_id: str
    result: str
    images: list[dict[str, Any]]
    is_error: bool
    is_synthetic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOutTool:
    """A tool of a scope that ran out of time: how often, and when last."""

    tool_name: str
    count: int
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeHealth:
    """How the calls of a scope went so far (A2)."""

    total: int
    by_status: dict[str, int]
    by_error_type: dict[str, int]
    timed_out_tools: list[TimedOutTool]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool that the agents of this site may get, and what it declares.

    `server` names its MCP server. `isolation` is empty if this process is not connected to it. `tokens` estimates its
    share of each request. `disabled_reason` says in sentences why it cannot be used now, by the settings of this
    process. `reported_by` names the other processes that have a tool which this one has not.
    """

    name: str
    description: str
    limits: ToolLimits
    isolation: str = ""
    server: str = ""
    tokens: int = 0
    disabled_reason: str = ""
    reported_by: tuple[str, ...] = ()


def calls_of_groups(groups: Iterable[str], *, with_content: bool = True) -> list[ToolCall]:
    """Return the calls of several groups, in the order of their steps; the long texts only `with_content`."""
    rows = ToolCall.objects.filter(group__in=list(groups))
    if not with_content:
        rows = rows.defer("input", "result", "detail", "late_text")
    return list(rows.order_by("group", "step", "position", "pk"))


def open_calls_of_groups(groups: Iterable[str]) -> dict[str, list[ToolCall]]:
    """Return the calls of several groups that wait or run, by group, in one query and without their long texts."""
    rows = ToolCall.objects.filter(group__in=list(groups), status__in=OPEN_STATUSES)
    found: dict[str, list[ToolCall]] = {}
    for row in rows.defer("input", "result", "detail").order_by("step", "position", "pk"):
        found.setdefault(row.group, []).append(row)
    return found


def running_tools(groups: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Return name and title of the tools that are at work in these groups, by group and in call order."""
    found: dict[str, list[tuple[str, str]]] = {}
    for group, name, title in _RUNNING_TOOLS.all(groups=groups):
        found.setdefault(group, []).append((name, title))
    return found


def open_tool_names(group: str) -> list[str]:
    """Return the names of the tools whose calls wait or run in a group, in call order."""
    return [name for (name,) in _OPEN_TOOL_NAMES.all(group=group)]


def _calls(*names: str, **wanted: Any) -> QuerySet[ToolCall, Any]:
    return ToolCall.objects.filter(**wanted).order_by("step", "position", "pk").values_list(*names)


_RUNNING_TOOLS = Select(
    lambda groups: _calls(
        "group", "tool_name", "tool_title", group__in=groups, status__in=RUNNING_STATUSES
    ),
    groups=_GROUPS,
)
_OPEN_TOOL_NAMES = Select(
    lambda group: _calls("tool_name", group=group, status__in=OPEN_STATUSES),
    **fields_of(ToolCall, "group"),
)


_RESULTS = Select(
    lambda groups: (
        _calls(*CallResult._fields, group__in=groups).exclude(status__in=OPEN_STATUSES).order_by()
    ),
    groups=_GROUPS,
)


def results_of_groups(groups: Iterable[str]) -> Iterator[CallResult]:
    """Yield the results of the ended calls of several groups, unordered and in batches."""
    wanted = list(groups)
    for start in range(0, len(wanted), _BATCH_SIZE):
        batch = wanted[start : start + _BATCH_SIZE]
        yield from starmap(CallResult, _RESULTS.all(groups=batch))


def call(group: str, call_id: str) -> ToolCall:
    """Return one call of a group. Raise `ToolCall.DoesNotExist` if there is none."""
    return ToolCall.objects.get(group=group, call_id=call_id)


def given_up() -> list[ToolCall]:
    """Return the calls that were given up and whose end is still watched for, without their long texts."""
    rows = ToolCall.objects.filter(status=CallStatus.ABANDONED, late_kind="")
    return list(rows.only("group", "call_id", "tool_name", "ended_at").order_by("pk"))


def may_still_run(group: str) -> list[str]:
    """Return the names of a group's tools whose calls were abandoned and have not been seen to end."""
    left = ToolCall.objects.filter(group=group, status=CallStatus.ABANDONED, late_kind="")
    return sorted(set(left.values_list("tool_name", flat=True)))


def has_call(group: str, call_id: str) -> bool:
    if call_id != sanitize_text(call_id):  # PostgreSQL would not even compare it
        return False
    return ToolCall.objects.filter(group=group, call_id=call_id).exists()


def awaits_approval(groups: Iterable[str]) -> bool:
    """Return whether a call of these groups waits for a person's decision."""
    waiting = ToolCall.objects.filter(status=CallStatus.AWAITING_APPROVAL, group__in=list(groups))
    return waiting.exists()


def waiting_approvals() -> tuple[int, datetime | None]:
    """Return how many calls wait for a person's decision, and since when the first of them does."""
    waiting = ToolCall.objects.filter(status=CallStatus.AWAITING_APPROVAL).order_by()
    found = waiting.aggregate(count=Count("pk"), first=Min("requested_at"))
    return found["count"], found["first"]


def count_timeouts(since: datetime, *, most: int) -> int:
    """Return how many calls of a time have run out of time; counted up to `most`."""
    rows = ToolCall.objects.filter(error_type=ErrorType.TIMEOUT, requested_at__gte=since)
    return rows.order_by()[:most].count()


def calls_of_group(group: str) -> list[ToolCall]:
    """Return the calls of one group, in the order of their steps."""
    return calls_of_groups([group])


def count_of_group(group: Expression) -> Subquery:
    """Return an expression: how many calls the group has that an expression of a query around it names."""
    calls = ToolCall.objects.filter(group=group).order_by().values("group")
    return Subquery(calls.values(count=Count("pk")))


def health(scope: str) -> ScopeHealth:
    """Return how the calls of a scope went so far, in one query."""
    rows = (
        ToolCall.objects.filter(scope=scope)
        .order_by()
        .values_list("tool_name", "status", "error_type")
        .annotate(count=Count("pk"), last_at=Max("ended_at"))
    )
    by_status: Counter[str] = Counter()
    by_error_type: Counter[str] = Counter()
    timed_out: dict[str, TimedOutTool] = {}
    for tool_name, status, error_type, count, last_at in rows:
        by_status[status] += count
        if error_type:
            by_error_type[error_type] += count
        if error_type == ErrorType.TIMEOUT:
            timed_out[tool_name] = _with(
                timed_out.get(tool_name), tool_name, count=count, last_at=last_at
            )
    return ScopeHealth(
        total=by_status.total(),
        by_status=dict(by_status),
        by_error_type=dict(by_error_type),
        timed_out_tools=sorted(timed_out.values(), key=lambda tool: (-tool.count, tool.tool_name)),
    )


def policy_version() -> int:
    """Return the version of the administrators' limits that is stored."""
    return DefaultPolicy.objects.values_list("version", flat=True).first() or 0


def capped(tool_name: str, timeout: float) -> float:
    """Return a limit in seconds, capped by the administrators' ceiling for the tool; 0 = none."""
    return cap(timeout, ceiling=resolve(read_policies().levels_of(tool_name)).ceiling)


@contextmanager
def tools_read_once() -> Iterator[None]:
    """Within it, the offered tools are read once, however often somebody asks for them: for one request, no longer."""
    token = _offered_once.set([])
    try:
        yield
    finally:
        _offered_once.reset(token)


def offered_tools() -> list[OfferedTool]:
    """Return the tools of this process, of the MCP servers, then those that only other live processes have.

    A server counts by what it has named, whether anybody is connected to it or not.
    """
    once = _offered_once.get()
    if once is None:
        return _read_offered()
    if not once:
        once.append(_read_offered())
    return [*once[0]]


def _read_offered() -> list[OfferedTool]:
    reported = tool_reports.read()
    offered = [
        replace(tool, reported_by=reported[tool.name].processes) if tool.name in reported else tool
        for tool in _offered_here()
    ]
    known = {tool.name for tool in offered}
    return offered + [_of_others(tool) for name, tool in reported.items() if name not in known]


def mcp_health() -> tuple[int, int]:
    """Return how many MCP servers are in use, and how many of them failed when they were needed last."""
    servers = list(McpServer.objects.filter(enabled=True).only("last_ok_at", "last_error_at"))
    return len(servers), sum(server.is_unwell for server in servers)


def mcp_prefixes() -> dict[str, str]:
    """Return how the names of the tools of each MCP server in use begin, by the server's name."""
    specs = map(readable_spec, McpServer.objects.filter(enabled=True))
    return {spec.name: spec.prefix for spec in specs if spec is not None}


def tool_title(name: str) -> str:
    """Return the title of a tool of this process; empty if it has none, or is not known here."""
    return registry.get(name).title if name in registry else ""


def find_tool(name: str) -> OfferedTool | None:
    """Return the tool of this name, registered in a live process or offered by an MCP server, or None."""
    if name in registry:
        return _offered(registry.get(name))
    return next((tool for tool in offered_tools() if tool.name == name), None)


def _offered_here() -> list[OfferedTool]:
    of_servers = [
        _of_server(spec, found)
        for row in McpServer.objects.filter(enabled=True)
        if (spec := readable_spec(row)) is not None
        for found in row.tools_found
        if spec.allows(found["name"])
    ]
    elsewhere = {tool.name for tool in of_servers}
    return [_offered(tool) for tool in registry if tool.name not in elsewhere] + of_servers


def _offered(tool: Tool, *, server: str = "") -> OfferedTool:
    return OfferedTool(
        name=tool.name,
        description=tool.description.partition("\n")[0],
        limits=tool.limits,
        isolation=tool.isolation.value,
        server=server,
        tokens=tool.tokens,
        disabled_reason=tool.disabled_reason(),
    )


def _of_others(tool: ReportedTool) -> OfferedTool:
    return OfferedTool(
        name=tool.name,
        description=": ".join(filter(None, [tool.title, tool.description])),
        limits=tool.limits,
        isolation=tool.isolation,
        server=tool.server,
        tokens=tool.tokens,
        reported_by=tool.processes,
    )


def _of_server(spec: ServerSpec, found: Mapping[str, Any]) -> OfferedTool:
    """Describe a server's tool from the server's row, where no process is connected."""
    name, text = spec.local_name(found["name"]), found["text"]
    if name in registry:
        return replace(_offered(registry.get(name), server=spec.name), description=text)
    limits = ToolLimits(timeout=spec.timeout, max_running=spec.max_running)
    tokens = found.get("tokens") or estimated_tokens(name, text, {})
    return OfferedTool(name=name, description=text, limits=limits, server=spec.name, tokens=tokens)


def _with(
    known: TimedOutTool | None, tool_name: str, *, count: int, last_at: datetime | None
) -> TimedOutTool:
    """A tool times out as `timed_out` or as `abandoned`: both count."""
    if known is None:
        return TimedOutTool(tool_name=tool_name, count=count, last_at=last_at)
    times = [at for at in (known.last_at, last_at) if at is not None]
    return TimedOutTool(
        tool_name=tool_name, count=known.count + count, last_at=max(times, default=None)
    )
