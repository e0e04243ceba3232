"""The tool calls: one row for each, from its request to its outcome."""

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from governance import labels
from governance.core.calls import CallStatus, Effects


class ToolCall(models.Model):
    """One tool call, from its request to its outcome. Its result is stored only here.

    `scope` (a conversation) and `group` (a turn) are opaque ids. `call_id` is the id that the chat model gave the call;
    it is unique within its group. A `timeout_ms` of 0 means no limit, and null means that the limit was never
    determined. `deadline_changes` lists `{at, from_ms, to_ms, from_idle_ms, to_idle_ms, source, by}` (T9). `effects`
    covers the work so far, or all of it once the call has ended. `limit_reached` is the limit that ended the call.
    `allowed_earlier_by` names the person whose earlier approval covers the call, so that it did not need another one.
    `images` lists `{id, name, media_type, size, width, height}` for each image that the call has shown.
    """

    LONG_COLUMNS: ClassVar = ("input", "result", "detail", "late_text")  # lists do not read these

    call_id = models.CharField(_("call id"), max_length=200)
    scope = models.CharField(_("scope"), max_length=64)
    group = models.CharField(_("group"), max_length=64)
    step = models.PositiveIntegerField(_("step"), default=0)
    position = models.PositiveIntegerField(_("position"), default=0)
    tool_name = models.CharField(_("tool"), max_length=128)
    tool_title = models.CharField(_("title"), max_length=80, blank=True, default="")
    tool_server = models.CharField(_("MCP server"), max_length=100, blank=True, default="")
    input = models.JSONField(_("input"), default=dict)
    isolation = models.CharField(_("isolation"), max_length=16, blank=True)
    concurrency = models.CharField(_("concurrency"), max_length=16, blank=True)
    cancellable = models.BooleanField(_("cancellable"), default=True)

    status = models.CharField(
        _("status"),
        max_length=20,
        default=CallStatus.PENDING.value,
        choices=labels.call_statuses,
    )
    error_type = models.CharField(
        _("error type"), max_length=20, blank=True, choices=labels.error_types
    )
    disposition = models.CharField(
        _("disposition"),
        max_length=20,
        blank=True,
        choices=labels.dispositions,
    )
    effects = models.CharField(
        _("effects"), max_length=10, default=Effects.NONE.value, choices=labels.effects
    )
    result = models.TextField(_("result"), blank=True)
    images = models.JSONField(_("images"), default=list)
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
        choices=labels.timeout_sources,
    )
    asked_timeout_ms = models.PositiveBigIntegerField(_("requested limit (ms)"), null=True)
    idle_timeout_ms = models.PositiveBigIntegerField(_("idle limit (ms)"), null=True)
    limit_reached = models.CharField(
        _("limit reached"), max_length=16, blank=True, choices=labels.limits
    )
    deadline_changes = models.JSONField(_("limit changes"), default=list)

    waits_for = models.JSONField(
        _("waited for"), default=dict, help_text="{kind, tool_id, tool_name}"
    )
    progress = models.JSONField(_("last progress"), default=dict)
    ended_by_reason = models.CharField(
        _("ended by"), max_length=16, blank=True, choices=labels.cancel_reasons
    )
    ended_by_source = models.CharField(
        _("ended via"),
        max_length=16,
        blank=True,
        choices=labels.cancel_sources,
    )
    ended_by_name = models.CharField(_("ended by whom"), max_length=150, blank=True)
    allowed_earlier_by = models.CharField(
        _("allowed earlier by"), max_length=150, blank=True, default=""
    )

    late_kind = models.CharField(_("late settlement"), max_length=16, blank=True)
    late_text = models.TextField(_("late result"), blank=True)
    late_after_ms = models.PositiveBigIntegerField(_("late by (ms)"), null=True)

    class Meta:
        app_label = "governance"
        verbose_name = _("tool call")
        verbose_name_plural = _("tool calls")
        ordering = ["-requested_at", "-pk"]
        permissions = [
            ("view_content", _("Can see messages, arguments and results")),
            ("export", _("Can export the history lists")),
        ]
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
            models.Index(fields=["scope", "-requested_at"], name="governance_call_scope"),
            models.Index(fields=["call_id"], name="governance_call_id"),
            # Not partial: SQLite cannot use a partial index for a value that is bound to the statement.
            models.Index(fields=["error_type", "-requested_at"], name="governance_call_error"),
            models.Index(fields=["disposition", "-requested_at"], name="governance_call_disposed"),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.call_id}"
