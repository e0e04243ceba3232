"""The queries of governance: calls of groups, the health of a scope, and the tools of this site."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import starmap
from typing import Any, NamedTuple

from django.db.models import Count, Expression, Max, Min, QuerySet, Subquery

from governance.core.calls import OPEN_STATUSES, RUNNING_STATUSES, CallStatus, ErrorType
from governance.core.policy import ToolLimits, cap, resolve
from governance.core.registry import registry
from governance.core.tools import Tool, estimated_tokens
from governance.mcp.specs import ServerSpec
from governance.mcp_servers.store import readable_spec
from governance.models import Approval, DefaultPolicy, McpServer, ToolCall
from governance.policies import read_policies
from governance.sanitize import sanitize_text
from governance.tool_reports import ReportedTool

# For type annotations in modules that may use such a row but must not import the models.
CallRow = ToolCall

_BATCH_SIZE = 1_024
_NOWHERE: Mapping[str, ReportedTool] = {}


class CallResult(NamedTuple):
    """The result of an ended call."""

    group: str
    call_id: str
    result: str
    images: list[dict[str, Any]]
    is_error: bool
    is_synthetic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOutTool:
    """A tool whose calls in a scope timed out, with the number of these calls and the time of the last one."""

    tool_name: str
    count: int
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeHealth:
    """Counts of a scope's calls and their failures so far (A2)."""

    total: int
    by_status: dict[str, int]
    by_error_type: dict[str, int]
    timed_out_tools: list[TimedOutTool]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool that agents of this site may use, with its declarations.

    `server` is the name of its MCP server. `isolation` is empty if this process is not connected to that server.
    `tokens` is an estimate of how many tokens its definition takes in each request. The user must have `permission`.
    `disabled_reason` has sentences that say why the settings of this process disable the tool. `reported_by` names the
    other processes that have the tool, if this one does not.
    """

    name: str
    description: str
    limits: ToolLimits
    isolation: str = ""
    server: str = ""
    tokens: int = 0
    permission: str = ""
    disabled_reason: str = ""
    reported_by: tuple[str, ...] = ()


def calls_of_groups(groups: Iterable[str], *, with_content: bool = True) -> list[ToolCall]:
    """Return the calls of several groups, in the order of their steps. `with_content` includes the long texts."""
    rows = ToolCall.objects.filter(group__in=list(groups))
    if not with_content:
        rows = rows.defer(*ToolCall.LONG_COLUMNS)
    return list(rows.order_by("group", "step", "position", "pk"))


def open_calls_of_groups(groups: Iterable[str]) -> dict[str, list[ToolCall]]:
    """Return the calls of several groups that wait or run, by group, in one query and without their long texts."""
    rows = ToolCall.objects.filter(group__in=list(groups), status__in=OPEN_STATUSES)
    calls_by_group: dict[str, list[ToolCall]] = {}
    for row in rows.defer(*ToolCall.LONG_COLUMNS).order_by("step", "position", "pk"):
        calls_by_group.setdefault(row.group, []).append(row)
    return calls_by_group


def running_tools(groups: Collection[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the name and title of the tools that are running in these groups, by group and in call order."""
    tools_by_group: dict[str, list[tuple[str, str]]] = {}
    running = _calls(
        "group", "tool_name", "tool_title", group__in=groups, status__in=RUNNING_STATUSES
    )
    for group, name, title in running:
        tools_by_group.setdefault(group, []).append((name, title))
    return tools_by_group


def open_tool_names(group: str) -> list[str]:
    """Return the names of the tools with open calls in a group, in call order."""
    rows = _calls("tool_name", group=group, status__in=OPEN_STATUSES)
    return [name for (name,) in rows]


def _calls(*names: str, **conditions: Any) -> QuerySet[ToolCall, Any]:
    return (
        ToolCall.objects.filter(**conditions).order_by("step", "position", "pk").values_list(*names)
    )


def results_of_groups(groups: Iterable[str]) -> Iterator[CallResult]:
    """Yield the results of the ended calls of several groups, unordered and in batches."""
    group_ids = list(groups)
    for start in range(0, len(group_ids), _BATCH_SIZE):
        batch = group_ids[start : start + _BATCH_SIZE]
        rows = _calls(*CallResult._fields, group__in=batch)
        yield from starmap(CallResult, rows.exclude(status__in=OPEN_STATUSES).order_by())


def find_result(scope: str, *, group_begins: str, call_id: str) -> CallResult | None:
    """Return the result of an ended call of a scope, in the group whose id begins with `group_begins`, or None."""
    if not group_begins or sanitize_text(group_begins + call_id) != group_begins + call_id:
        return None
    rows = _calls(*CallResult._fields, scope=scope, call_id=call_id, group__startswith=group_begins)
    row = rows.exclude(status__in=OPEN_STATUSES).exclude(result="").first()
    return CallResult(*row) if row else None


def call(group: str, call_id: str) -> ToolCall:
    """Return one call of a group. Raise `ToolCall.DoesNotExist` if there is none."""
    return ToolCall.objects.get(group=group, call_id=call_id)


def abandoned_calls() -> list[ToolCall]:
    """Return the abandoned calls whose end is still awaited, without their long texts."""
    rows = ToolCall.objects.filter(status=CallStatus.ABANDONED, late_kind="")
    return list(rows.only("group", "call_id", "tool_name", "ended_at").order_by("pk"))


def may_still_run(group: str) -> list[str]:
    """Return the names of a group's tools with abandoned calls whose end was not observed."""
    unsettled = ToolCall.objects.filter(group=group, status=CallStatus.ABANDONED, late_kind="")
    return sorted(set(unsettled.values_list("tool_name", flat=True)))


def has_call(group: str, call_id: str) -> bool:
    if call_id != sanitize_text(call_id):  # PostgreSQL refuses to compare such a string
        return False
    return ToolCall.objects.filter(group=group, call_id=call_id).exists()


def waiting_approvals() -> tuple[int, datetime | None]:
    """Return how many questions, including forms, wait for a person, and when the oldest one was asked."""
    open_questions = Approval.objects.filter(decision="").order_by()
    summary = open_questions.aggregate(count=Count("pk"), first=Min("requested_at"))
    return summary["count"], summary["first"]


def calls_of_group(group: str) -> list[ToolCall]:
    """Return the calls of one group, in the order of their steps."""
    return calls_of_groups([group])


def count_of_group(group: Expression) -> Subquery:
    """Return a subquery that counts the calls of a group; `group` is an expression of the outer query."""
    calls = ToolCall.objects.filter(group=group).order_by().values("group")
    return Subquery(calls.values(count=Count("pk")))


def health(scope: str) -> ScopeHealth:
    """Return the counts of a scope's calls and failures so far, in one query."""
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
    """Return the stored version of the administrators' limits."""
    return DefaultPolicy.objects.values_list("version", flat=True).first() or 0


def capped(tool_name: str, timeout: float) -> float:
    """Return a limit in seconds, capped by the administrators' ceiling for the tool. 0 means no limit."""
    return cap(timeout, ceiling=resolve(read_policies().levels_of(tool_name)).ceiling)


def offered_tools(elsewhere: Mapping[str, ReportedTool] = _NOWHERE) -> list[OfferedTool]:
    """Return the tools of this process, those of the MCP servers, and those that only other processes have
    (`elsewhere`).

    A server's tools come from its stored list, whether or not a process is connected to it.
    """
    tools = [
        replace(tool, reported_by=elsewhere[tool.name].processes)
        if tool.name in elsewhere
        else tool
        for tool in _offered_here()
    ]
    offered_names = {tool.name for tool in tools}
    return tools + [
        _of_others(tool) for name, tool in elsewhere.items() if name not in offered_names
    ]


def mcp_health() -> tuple[int, int]:
    """Return the number of enabled MCP servers, and how many of them failed at their last use."""
    servers = list(McpServer.objects.filter(enabled=True).only("last_ok_at", "last_error_at"))
    return len(servers), sum(server.is_unwell for server in servers)


def mcp_prefixes() -> dict[str, str]:
    """Return the prefix of the tool names of each enabled MCP server, by the server's name."""
    specs = map(readable_spec, McpServer.objects.filter(enabled=True))
    return {spec.name: spec.prefix for spec in specs if spec is not None}


def tool_title(name: str) -> str:
    """Return the title of a tool, or an empty string if it has none or is not registered in this process."""
    return registry.get(name).title if name in registry else ""


def find_tool(name: str) -> OfferedTool | None:
    """Return the tool of this name, registered in this process or offered by an MCP server, or None."""
    if name in registry:
        return _offered(registry.get(name))
    return next((tool for tool in offered_tools() if tool.name == name), None)


def _offered_here() -> list[OfferedTool]:
    of_servers = [
        _of_server(spec, reported_tool)
        for row in McpServer.objects.filter(enabled=True)
        if (spec := readable_spec(row)) is not None
        for reported_tool in row.tools_found
        if spec.allows(reported_tool["name"])
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
        permission=tool.permission,
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
        permission=tool.permission,
        reported_by=tool.processes,
    )


def _of_server(spec: ServerSpec, tool: Mapping[str, Any]) -> OfferedTool:
    """Describe a server's tool from the server's row, without a connection."""
    name, text = spec.local_name(tool["name"]), tool["text"]
    if name in registry:
        return replace(_offered(registry.get(name), server=spec.name), description=text)
    limits = ToolLimits(timeout=spec.timeout, max_running=spec.max_running)
    tokens = tool.get("tokens") or estimated_tokens(name, text, {})
    return OfferedTool(name=name, description=text, limits=limits, server=spec.name, tokens=tokens)


def _with(
    before: TimedOutTool | None, tool_name: str, *, count: int, last_at: datetime | None
) -> TimedOutTool:
    """Add a count to a tool, because its `timed_out` and its `abandoned` calls are counted together."""
    if before is None:
        return TimedOutTool(tool_name=tool_name, count=count, last_at=last_at)
    times = [at for at in (before.last_at, last_at) if at is not None]
    return TimedOutTool(
        tool_name=tool_name, count=before.count + count, last_at=max(times, default=None)
    )
