"""The administrators' limits, kept in memory so that the executor reads them for every call without a query."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Max
from django.db.models.functions import Now

from governance.conf import setting_limits, tool_setting_limits
from governance.core.exceptions import GovernanceError
from governance.core.policy import PolicyLevels, ToolLimits
from governance.core.tools import Tool
from governance.db import run_in_db_thread, run_in_query_thread
from governance.db_clock import database_now
from governance.models import DefaultPolicy, PolicyChange, ToolPolicy
from governance.signals import policy_changed

logger = logging.getLogger(__name__)


class PoliciesNotLoaded(GovernanceError):
    """A limit was read on an event loop before `aload()`, so the returned limit could have been wrong."""

    def __init__(self) -> None:
        super().__init__(
            "The limits are not loaded: await DatabasePolicySource.aload() before the first call."
        )


SYSTEM = "system"  # the name recorded as the editor that ends a temporary limit
_SILENT = ToolLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The version, time and editor of an edit of limits."""

    version: int = 0
    by: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """All limits that administrators have set, at one version; version 0 means that nothing has been edited yet.

    `next_end` is when the next temporary limit ends, by the database's clock. The temporary limits in `ended` have
    ended, but their rows have not been updated yet.
    """

    version: int = 0
    default: ToolLimits = _SILENT
    overrides: Mapping[str, ToolLimits] = field(default_factory=dict)
    edits: Mapping[str, Edit] = field(default_factory=dict)
    next_end: datetime | None = None
    ended: frozenset[str] = frozenset()
    _levels: dict[str, PolicyLevels] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @property
    def has_disabled(self) -> bool:
        """Whether an administrator has disabled any tool."""
        return not (
            self.default.enabled and all(limits.enabled for limits in self.overrides.values())
        )

    def is_enabled(self, name: str) -> bool:
        """Return whether no administrator has disabled the tool."""
        return self.default.enabled and self.overrides.get(name, _SILENT).enabled

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the limits of every level for a tool (T2)."""
        return self.levels_of(tool.name, declared=tool.limits)

    def levels_of(self, name: str, *, declared: ToolLimits = _SILENT) -> PolicyLevels:
        """Return the limits of every level for the tool of this name, which may exist only in other processes."""
        of_tool, of_all = tool_setting_limits(name), setting_limits()
        levels = self._levels.get(name)
        # Cached, because each call needs the levels several times, and they change only with the version or the
        # settings.
        if (
            levels is None
            or levels.tool_setting is not of_tool
            or levels.setting is not of_all
            or levels.declared is not declared
        ):
            levels = self._levels[name] = PolicyLevels(
                override=self.overrides.get(name, _SILENT),
                tool_setting=of_tool,
                declared=declared,
                default=self.default,
                setting=of_all,
                version=self.version,
                changed_by=max(
                    self._edits_of(name), key=lambda edit: edit.version, default=Edit()
                ).by,
            )
        return levels

    def _edits_of(self, name: str) -> Iterator[Edit]:
        """Return the last edit of the tool's own limits and the last edit of the defaults."""
        return (self.edits[subject] for subject in (name, "") if subject in self.edits)


def read_policies() -> Policies:
    """Read the limits and their last editors, in three queries, or four if a limit is temporary."""
    # The version is read first, so that the next refresh notices an edit between the two queries.
    row = DefaultPolicy.objects.first()
    rows = list(ToolPolicy.objects.all())
    ended_limits = _end_temporary(rows)
    overrides = {policy.tool_name: policy.as_limits() for policy in rows}
    if row is None:
        return Policies(overrides=overrides)
    by_system = {
        name: Edit(version=row.version, by=SYSTEM, at=at) for name, at in ended_limits.items()
    }
    return Policies(
        version=row.version,
        default=row.as_limits(),
        overrides=overrides,
        edits=_last_edits() | by_system,
        next_end=min((policy.until for policy in rows if policy.until), default=None),
        ended=frozenset(ended_limits),
    )


def _end_temporary(rows: Iterable[ToolPolicy]) -> dict[str, datetime]:
    """End, in memory only, the temporary limits whose end has passed. Return the times of these ends, by tool."""
    temporary = [row for row in rows if row.until]
    now = database_now() if temporary else None
    end_by_tool = {}
    for row in temporary:
        if row.until and now and row.until <= now:
            end_by_tool[row.tool_name] = row.until
            row.end_temporary()
    return end_by_tool


def _last_edits() -> dict[str, Edit]:
    """Return the last edit of each tool's limits, by tool name. The name "" means the default limits."""
    last = PolicyChange.objects.order_by().values("tool_name").annotate(last=Max("version"))
    changes = PolicyChange.objects.filter(version__in=last.values("last"))
    return {
        change.tool_name: Edit(version=change.version, by=change.by_name, at=change.at)
        for change in changes.only("tool_name", "version", "by_name", "at")
    }


class DatabasePolicySource:
    """A `PolicySource` for the executor that returns limits from memory and follows the database.

    The owner of the process awaits `aload()` once and `arefresh()` about every second. An edit in this process applies
    immediately. Functions passed to `on_change` are called after every change, in the thread that noticed it. To call
    into an event loop, they must use `call_soon_threadsafe`.
    """

    def __init__(self) -> None:
        self._policies: Policies | None = None
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        # A weak reference, so that a source without an owner is dropped.
        policy_changed.connect(self._policy_changed)

    @property
    def version(self) -> int:
        """The version of the loaded limits, or 0 before the first load."""
        return self._policies.version if self._policies else 0

    @property
    def policies(self) -> Policies:
        """All loaded limits. They are empty before the first load."""
        return self._policies or Policies()

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the limits of every level for a tool, from memory.

        If they are not loaded yet, load them first. On an event loop, raise `PoliciesNotLoaded` instead.
        """
        policies = self._policies
        if policies is None:
            if _on_event_loop():
                raise PoliciesNotLoaded
            self.reload()
            return self.levels(tool)
        return policies.levels(tool)

    def reload(self) -> None:
        """Load the limits from the database, and notify the listeners if they differ from those loaded before."""
        # One reader at a time, so that limits read earlier never replace limits read later.
        with self._lock:
            policies = read_policies()
            old_policies, self._policies = self._policies, policies
        if old_policies is not None and policies != old_policies:
            self._notify_listeners()

    def refresh(self) -> bool:
        """Load the limits if their version has changed or a temporary limit has ended. Return whether they were loaded."""
        old_policies = self._policies
        row = DefaultPolicy.objects.order_by("pk").values_list("version", Now()).first()
        version, now = row or (0, None)
        has_ended = bool(
            old_policies and old_policies.next_end and now and old_policies.next_end <= now
        )
        if old_policies is not None and old_policies.version == version and not has_ended:
            return False
        self.reload()
        return True

    async def aload(self) -> None:
        """Do the same as `reload` in a database thread, so that a coroutine can await it."""
        await run_in_db_thread(self.reload)()

    async def arefresh(self) -> bool:
        """Do the same as `refresh` in a database thread, so that a coroutine can await it."""
        return await _refresh(self)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change of the limits in memory."""
        self._listeners.append(listener)

    def _policy_changed(self, **_: Any) -> None:
        if self._policies is not None:
            self.reload()

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            try:
                # In a new context, because a task that a listener starts must not inherit asgiref's context variables
                # of this thread. Otherwise, asgiref would refuse its next call into a database thread as a deadlock.
                Context().run(listener)
            except Exception:
                logger.exception("A listener to changed limits failed")


_refresh = run_in_query_thread(DatabasePolicySource.refresh)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
