"""Rows of governance: the administrators' limits, their edits, and one row for every tool call."""

from dataclasses import replace

from django.conf import settings
from django.core.exceptions import FieldDoesNotExist
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance import validation
from governance.core.calls import CallStatus, Disposition, ErrorType
from governance.core.cancellation import CancelReason, CancelSource
from governance.core.policy import TimeoutSource, ToolLimits
from governance.durations import format_limit, to_seconds
from governance.mcp.rules import check_server
from governance.mcp.specs import Transport

_MOST_CALLS = 10_000
_CALLS_AT_ONCE = [
    MinValueValidator(
        1, _("At least one call must be able to run; switch the tool off to let none run.")
    ),
    MaxValueValidator(
        _MOST_CALLS, _("More than %(limit_value)s calls at once is no limit; leave it blank.")
    ),
]


class Limits(models.Model):
    """The limits that an administrator may set on a level; blank = this level says nothing (T2).

    Edit them through `governance.services`: a row saved directly is not noticed until the version moves. `revision`
    counts the edits of this row and tells two editors apart.
    """

    timeout_ms = models.BigIntegerField(
        _("total limit"), null=True, blank=True, help_text=_("0 = no limit. Blank = not set here.")
    )
    idle_timeout_ms = models.BigIntegerField(
        _("idle limit"),
        null=True,
        blank=True,
        help_text=_("Longest silence. 0 = no limit. Blank = not set here."),
    )
    ceiling_ms = models.BigIntegerField(
        _("ceiling for hints"),
        null=True,
        blank=True,
        help_text=_("The most a call may ask for itself. 0 = no ceiling. Blank = not set here."),
    )
    max_running = models.PositiveIntegerField(
        _("calls at once"),
        null=True,
        blank=True,
        validators=_CALLS_AT_ONCE,
        help_text=_("In one process. Blank = not set here."),
    )
    note = models.TextField(_("note"), blank=True, help_text=_("Why the limits are as they are."))
    revision = models.PositiveIntegerField(
        _("edit"), default=0, help_text=_("How often this row was edited.")
    )
    updated_at = models.DateTimeField(_("changed at"), auto_now=True)

    class Meta:
        abstract = True

    def as_limits(self) -> ToolLimits:
        """Return the row as one level of the policy."""
        return ToolLimits(
            timeout=to_seconds(self.timeout_ms),
            idle_timeout=to_seconds(self.idle_timeout_ms),
            ceiling=to_seconds(self.ceiling_ms),
            max_running=self.max_running,
        )

    def clean(self) -> None:
        """Refuse limits that make no sense, in words."""
        validation.check_limits(self)


class DefaultPolicy(Limits):
    """The one row of limits for every tool; `version` counts the edits of all policies."""

    version = models.PositiveBigIntegerField(_("version"), default=0, editable=False)

    class Meta:
        verbose_name = _("default limits")
        verbose_name_plural = _("default limits")
        constraints = [
            models.CheckConstraint(condition=models.Q(pk=1), name="governance_one_default_policy")
        ]

    def __str__(self) -> str:
        return str(_("Default limits"))


class ToolPolicy(Limits):
    """An override for one tool. `is_active` off = the override is ignored; `tool_enabled` off = the tool may not run."""

    tool_name = models.CharField(
        _("tool"),
        max_length=128,
        unique=True,
        error_messages={"unique": _("This tool has limits already: edit those.")},
    )
    is_active = models.BooleanField(
        _("in force"),
        default=True,
        help_text=_("Off = this row is ignored and the next level counts."),
    )
    tool_enabled = models.BooleanField(
        _("tool may be used"), default=True, help_text=_("Off = calls of this tool are refused.")
    )

    class Meta:
        verbose_name = _("tool limits")
        verbose_name_plural = _("tool limits")
        ordering = ["tool_name"]

    def __str__(self) -> str:
        return self.tool_name

    def as_limits(self) -> ToolLimits:
        """Return the row as one level of the policy; an override that is not in force says nothing."""
        if not self.is_active:
            return ToolLimits()
        return replace(super().as_limits(), enabled=self.tool_enabled)

    def clean(self) -> None:
        """Refuse limits that make no sense, and a new row for a tool that does not exist."""
        if self._state.adding:
            validation.check_tool_name(self.tool_name)
        super().clean()


class PolicyChange(models.Model):
    """One edit of a policy: who changed which field from what to what, and when (append-only)."""

    tool_name = models.CharField(
        _("tool"),
        max_length=128,
        blank=True,
        db_index=True,
        help_text=_("Blank = the default limits."),
    )
    action = models.CharField(
        _("action"),
        max_length=8,
        choices=[("add", _("added")), ("change", _("changed")), ("delete", _("deleted"))],
    )
    changes = models.JSONField(_("changes"), default=dict, help_text=_("field → [old, new]"))
    version = models.PositiveBigIntegerField(_("version"))
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", verbose_name=_("by")
    )
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    at = models.DateTimeField(_("at"), auto_now_add=True)

    class Meta:
        verbose_name = _("limit change")
        verbose_name_plural = _("limit changes")
        ordering = ["-at", "-pk"]

    def __str__(self) -> str:
        return f"{self.tool_name or _('default')} v{self.version}"

    @property
    def summary(self) -> str:
        """The changes in one line: "total limit: 2 min → 30 s"."""
        return "; ".join(
            f"{_limit_label(name)}: {in_words(name, old)} → {in_words(name, new)}"
            for name, (old, new) in self.changes.items()
        )


def _limit_label(name: str) -> str:
    try:
        return str(ToolPolicy._meta.get_field(name).verbose_name)  # type: ignore[union-attr]  # never a relation
    except FieldDoesNotExist:  # a field of an earlier version
        return name


def in_words(name: str, value: object) -> str:
    """Return a field's value as people read it: durations with units, yes and no."""
    if name.endswith("_ms") and (value is None or isinstance(value, int)):
        return format_limit(value)
    if isinstance(value, bool):
        return str(_("yes") if value else _("no"))
    return str(_("not set")) if value is None or value == "" else str(value)


class ToolCall(models.Model):
    """One request to run one tool, from proposal to outcome; the only place where its result is kept.

    `scope` (a conversation) and `group` (a turn) are opaque ids here. `call_id` is the model's id of the call and is
    unique in its group. `timeout_ms` 0 = no limit, null = it never had one; `deadline_changes` lists
    `{at, from_ms, to_ms, source, by}` (T9).
    """

    call_id = models.CharField(_("call id"), max_length=200)
    scope = models.CharField(_("scope"), max_length=64, db_index=True)
    group = models.CharField(_("group"), max_length=64)
    step = models.PositiveIntegerField(_("step"), default=0)
    position = models.PositiveIntegerField(_("position"), default=0)
    tool_name = models.CharField(_("tool"), max_length=128)
    input = models.JSONField(_("input"), default=dict)
    isolation = models.CharField(_("isolation"), max_length=16, blank=True)
    concurrency = models.CharField(_("concurrency"), max_length=16, blank=True)
    cancellable = models.BooleanField(_("cancellable"), default=True)

    status = models.CharField(
        _("status"),
        max_length=20,
        default=CallStatus.PENDING.value,
        choices=[(s.value, s.value) for s in CallStatus],
    )
    error_type = models.CharField(
        _("error type"), max_length=20, blank=True, choices=[(e.value, e.value) for e in ErrorType]
    )
    disposition = models.CharField(
        _("disposition"),
        max_length=20,
        blank=True,
        choices=[(d.value, d.value) for d in Disposition],
    )
    result = models.TextField(_("result"), blank=True)
    is_error = models.BooleanField(_("is error"), default=False)
    is_synthetic = models.BooleanField(_("written by the system"), default=False)
    detail = models.TextField(_("detail for operators"), blank=True)

    requested_at = models.DateTimeField(_("requested at"))
    started_at = models.DateTimeField(_("started at"), null=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)
    queued_ms = models.PositiveBigIntegerField(_("waited (ms)"), null=True)
    duration_ms = models.PositiveBigIntegerField(_("ran (ms)"), null=True)

    timeout_ms = models.PositiveBigIntegerField(_("limit (ms)"), null=True)
    timeout_source = models.CharField(
        _("limit from"),
        max_length=16,
        blank=True,
        choices=[(s.value, s.value) for s in TimeoutSource],
    )
    asked_timeout_ms = models.PositiveBigIntegerField(_("limit asked for (ms)"), null=True)
    idle_timeout_ms = models.PositiveBigIntegerField(_("idle limit (ms)"), null=True)
    deadline_changes = models.JSONField(_("limit changes"), default=list)

    progress = models.JSONField(_("last progress"), default=dict)
    ended_by_reason = models.CharField(
        _("ended by"), max_length=16, blank=True, choices=[(r.value, r.value) for r in CancelReason]
    )
    ended_by_source = models.CharField(
        _("means"),
        max_length=16,
        blank=True,
        choices=[(s.value, s.value) for s in CancelSource],
    )
    ended_by_name = models.CharField(_("ended by whom"), max_length=150, blank=True)

    late_kind = models.CharField(_("late settlement"), max_length=16, blank=True)
    late_text = models.TextField(_("late result"), blank=True)
    late_after_ms = models.PositiveBigIntegerField(_("late by (ms)"), null=True)

    class Meta:
        verbose_name = _("tool call")
        verbose_name_plural = _("tool calls")
        ordering = ["-requested_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["group", "call_id"], name="governance_call_once_in_group"
            )
        ]
        indexes = [
            models.Index(fields=["group", "step", "position"], name="governance_call_order"),
            models.Index(fields=["tool_name", "-requested_at"], name="governance_call_tool"),
            models.Index(fields=["status", "-requested_at"], name="governance_call_status"),
            models.Index(fields=["-requested_at", "-id"], name="governance_call_recent"),
            models.Index(
                fields=["error_type", "-requested_at"],
                condition=~models.Q(error_type=""),
                name="governance_call_error",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.call_id}"


class McpServer(models.Model):
    """An MCP server whose tools the agents may use (G2), and how it did when it was asked last.

    Secrets are never stored: `headers` maps a header to the environment variable that holds its value, `environment`
    lists variables that are passed on to a command. The health fields are written by the processes that use it.
    """

    name = models.CharField(
        _("name"),
        max_length=32,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z0-9][a-z0-9_-]*\Z",
                _(
                    "Write small letters, digits, “_” and “-”; the names of its tools begin with it."
                ),
            )
        ],
    )
    transport = models.CharField(
        _("kind"),
        max_length=8,
        default=Transport.STDIO.value,
        choices=[
            (Transport.STDIO.value, _("a command on this machine (stdio)")),
            (Transport.HTTP.value, _("an address (streamable HTTP)")),
        ],
    )
    command = models.TextField(
        _("command"),
        blank=True,
        help_text=_("The program and its arguments, as “npx -y some-server”. No shell reads them."),
    )
    url = models.CharField(_("address"), max_length=2000, blank=True)
    headers = models.JSONField(
        _("headers"),
        default=dict,
        blank=True,
        help_text=_("“Header: VARIABLE”, one in each line: the variable holds the whole value."),
    )
    environment = models.JSONField(
        _("environment"),
        default=list,
        blank=True,
        help_text=_(
            "Names of variables of this server that the command may see, one in each line."
        ),
    )
    enabled = models.BooleanField(_("in use"), default=True)
    allowed_tools = models.JSONField(
        _("allowed tools"),
        default=list,
        blank=True,
        help_text=_("Names as the server gives them, one in each line. Blank = all of them."),
    )
    timeout_ms = models.PositiveBigIntegerField(
        _("total limit"),
        null=True,
        blank=True,
        help_text=_("What its tools declare. 0 = no limit. Blank = not set here."),
    )
    max_running = models.PositiveIntegerField(
        _("calls at once"),
        null=True,
        blank=True,
        validators=_CALLS_AT_ONCE,
        help_text=_("Of all its tools together, in one process. Blank = not set here."),
    )
    prefix = models.CharField(
        _("prefix"),
        max_length=32,
        blank=True,
        help_text=_("Put before the names of its tools. Blank = the server's name and “_”."),
    )
    allow_private = models.BooleanField(
        _("may be on a private network"),
        default=False,
        help_text=_("For addresses: also loopback and the networks that only this machine sees."),
    )
    last_ok_at = models.DateTimeField(_("well at"), null=True, editable=False)
    last_error = models.CharField(_("last problem"), max_length=500, blank=True, editable=False)
    last_error_at = models.DateTimeField(_("problem at"), null=True, editable=False)
    tools_found = models.JSONField(_("its tools"), default=list, editable=False)

    class Meta:
        verbose_name = _("MCP server")
        verbose_name_plural = _("MCP servers")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse a server that could not be connected, in words."""
        check_server(self)
