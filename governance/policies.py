"""The administrators' limits in memory: what the executor asks for every call, without touching the database."""

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
from governance.prepared_statements import Select
from governance.signals import policy_changed

logger = logging.getLogger(__name__)


class PoliciesNotLoaded(GovernanceError):
    """A limit was read on an event loop before `aload()`; a limit that may be wrong is never returned."""

    def __init__(self) -> None:
        super().__init__(
            "The limits are not loaded: await DatabasePolicySource.aload() before the first call."
        )


SYSTEM = "system"  # who ends a temporary limit
_SILENT = ToolLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """At which version limits were edited, when, and by whom."""

    version: int = 0
    by: str = ""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Every administrator's limit at one version; version 0 = no edit yet.

    `next_end` is when the next temporary limit ends, by the database's clock. Those of `ended` are over, though their
    rows do not say so yet.
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
        """Whether an administrator has switched any tool off."""
        return not (
            self.default.enabled and all(limits.enabled for limits in self.overrides.values())
        )

    def is_enabled(self, name: str) -> bool:
        """Return whether no administrator has switched the tool off."""
        return self.default.enabled and self.overrides.get(name, _SILENT).enabled

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the limits of every level for a tool (T2)."""
        return self.levels_of(tool.name, declared=tool.limits)

    def levels_of(self, name: str, *, declared: ToolLimits = _SILENT) -> PolicyLevels:
        """Return the same of a tool by its name, which may be known in other processes only."""
        of_tool, of_all = tool_setting_limits(name), setting_limits()
        known = self._levels.get(name)
        # Nothing else of these changes, and they are asked for several times in each call.
        if (
            known is None
            or known.tool_setting is not of_tool
            or known.setting is not of_all
            or known.declared is not declared
        ):
            known = self._levels[name] = PolicyLevels(
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
        return known

    def _edits_of(self, name: str) -> Iterator[Edit]:
        """The last edit of the tool's own limits, and of the default ones."""
        return (self.edits[subject] for subject in (name, "") if subject in self.edits)


def read_policies() -> Policies:
    """Read the limits and who edited them last, in three queries; in four where one is temporary."""
    # The version first: the next refresh then finds an edit between the two queries.
    row = DefaultPolicy.objects.first()
    rows = list(ToolPolicy.objects.all())
    ended = _end_temporary(rows)
    overrides = {policy.tool_name: policy.as_limits() for policy in rows}
    if row is None:
        return Policies(overrides=overrides)
    by_system = {name: Edit(version=row.version, by=SYSTEM, at=at) for name, at in ended.items()}
    return Policies(
        version=row.version,
        default=row.as_limits(),
        overrides=overrides,
        edits=_last_edits() | by_system,
        next_end=min((policy.until for policy in rows if policy.until), default=None),
        ended=frozenset(ended),
    )


def _end_temporary(rows: Iterable[ToolPolicy]) -> dict[str, datetime]:
    """Let rows say what counts now where their temporary limit is over; return these tools, and since when."""
    temporary = [row for row in rows if row.until]
    now = database_now() if temporary else None
    ended = {}
    for row in temporary:
        if row.until and now and row.until <= now:
            ended[row.tool_name] = row.until
            row.end_temporary()
    return ended


def _last_edits() -> dict[str, Edit]:
    """Return the last edit of each tool's limits; "" = the default limits."""
    last = PolicyChange.objects.order_by().values("tool_name").annotate(last=Max("version"))
    changes = PolicyChange.objects.filter(version__in=last.values("last"))
    return {
        change.tool_name: Edit(version=change.version, by=change.by_name, at=change.at)
        for change in changes.only("tool_name", "version", "by_name", "at")
    }


_VERSION = Select(lambda: DefaultPolicy.objects.order_by("pk").values_list("version", Now())[:1])


class DatabasePolicySource:
    """The executor's `PolicySource`: answers from memory and follows the database.

    The owner of the process awaits `aload()` once and `arefresh()` about every second. An edit in this process
    applies at once. Functions passed to `on_change` are called after every change, in the thread that noticed it. To
    reach an event loop they use `call_soon_threadsafe`.
    """

    def __init__(self) -> None:
        self._policies: Policies | None = None
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        policy_changed.connect(
            self._policy_changed
        )  # weak references: a source without an owner is dropped

    @property
    def version(self) -> int:
        """The version in force in this process; 0 before the first load."""
        return self._policies.version if self._policies else 0

    @property
    def policies(self) -> Policies:
        """Every limit in force in this process; empty before the first load."""
        return self._policies or Policies()

    def levels(self, tool: Tool) -> PolicyLevels:
        """Return the limits of every level for a tool, from memory. Off the event loop, the first call loads them."""
        policies = self._policies
        if policies is None:
            if _on_event_loop():
                raise PoliciesNotLoaded
            self.reload()
            return self.levels(tool)
        return policies.levels(tool)

    def reload(self) -> None:
        """Load the limits."""
        with (
            self._lock
        ):  # one reader at a time, so that an older reading never replaces a newer one
            policies = read_policies()
            known, self._policies = self._policies, policies
        if known is not None and policies != known:
            self._notify_listeners()

    def refresh(self) -> bool:
        """Load the limits if their version moved, or a temporary one is over. Return whether that was so."""
        known = self._policies
        version, now = _VERSION.first() or (0, None)
        is_over = bool(known and known.next_end and now and known.next_end <= now)
        if known is not None and known.version == version and not is_over:
            return False
        self.reload()
        return True

    async def aload(self) -> None:
        """Read the limits, from a coroutine."""
        await run_in_db_thread(self.reload)()

    async def arefresh(self) -> bool:
        """`refresh` for coroutines."""
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
                # In a context of its own: a task that a listener starts must not inherit asgiref's
                # marks of this thread. Its next crossing to the database would be refused as a
                # deadlock.
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
