"""The administrators' limits: one default row, one override for each tool, and every edit of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import models
from django.forms import model_to_dict
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from governance import validation
from governance.audit import Change
from governance.core.policy import LIMITS, ApprovalRule, ToolLimits
from governance.durations import time_text, to_seconds
from governance.model_fields import DatabaseTimeField, calls_at_once, span
from governance.translations import StoredSentences


class Limits(models.Model):
    """The limits that an administrator may set on one level. A blank limit is not set on this level (T2).

    Edit the rows through `governance.services`, because a row that is saved directly takes effect only with the next
    version. `revision` counts the edits of this row, including those of deleted rows for the same tool, so that
    conflicting edits are detected.
    """

    timeout_ms = span(_("total limit"), _("0 = no limit. Blank = not set here."))
    idle_timeout_ms = span(
        _("idle limit"),
        _("Longest time without a progress report. 0 = no limit. Blank = not set here."),
    )
    ceiling_ms = span(
        _("ceiling for requested limits"),
        _(
            "The highest limit that a call may request for itself. 0 = no ceiling. Blank = not set here."
        ),
    )
    max_running = calls_at_once(_("In one process. Blank = not set here."))
    approval = models.CharField(
        _("approval"),
        max_length=24,
        blank=True,
        choices=[
            ("never", _("never")),
            ("once_per_conversation", _("once per conversation")),
            ("always", _("always")),
        ],
        help_text=_("Whether a person must approve a call. Blank = not set here."),
    )
    approval_timeout_ms = span(
        _("approval limit"),
        _("How long a person may take to decide. 0 = no limit. Blank = not set here."),
    )
    note = models.TextField(_("note"), blank=True, help_text=_("The reason for these limits."))
    revision = models.PositiveIntegerField(
        _("edit"), default=0, help_text=_("How often this row was edited.")
    )
    updated_at = DatabaseTimeField(_("changed at"), auto_now=True)

    class Meta:
        abstract = True

    def as_limits(self) -> ToolLimits:
        """Return the row as one level of the policy."""
        values: dict[str, Any] = {}
        for name in LIMITS:
            if hasattr(self, f"{name}_ms"):
                values[name] = to_seconds(getattr(self, f"{name}_ms"))
            elif hasattr(self, name):
                values[name] = getattr(self, name)
        values["approval"] = ApprovalRule(self.approval) if self.approval else None
        return ToolLimits(**values)

    def clean(self) -> None:
        """Raise `ValidationError` if a limit is invalid."""
        validation.check_limits(model_to_dict(self))


class DefaultPolicy(Limits):
    """The one row of limits for every tool; `version` counts the edits of all policies."""

    version = models.PositiveBigIntegerField(_("version"), default=0, editable=False)

    class Meta:
        app_label = "governance"
        verbose_name = _("default limits")
        verbose_name_plural = _("default limits")
        constraints = [
            models.CheckConstraint(condition=models.Q(pk=1), name="governance_one_default_policy")
        ]

    def __str__(self) -> str:
        return str(_("Default limits"))


class ToolPolicy(Limits):
    """The limits of one tool. If `is_active` is false, they are ignored; if `tool_enabled` is false, it may not run."""

    tool_name = models.CharField(
        _("tool"),
        max_length=128,
        unique=True,
        error_messages={"unique": _("This tool already has limits. Edit those.")},
    )
    is_active = models.BooleanField(
        _("active"),
        default=True,
        help_text=_("Off = this row is ignored and the next level applies."),
    )
    tool_enabled = models.BooleanField(
        _("tool may be used"), default=True, help_text=_("Off = calls of this tool are refused.")
    )
    until = models.DateTimeField(
        _("only until"),
        null=True,
        editable=False,
        help_text=_("By the database's clock. After that, the values in “then” apply."),
    )
    then = models.JSONField(
        _("then"), default=dict, editable=False, help_text=_("field → value after that")
    )

    class Meta:
        app_label = "governance"
        verbose_name = _("tool limits")
        verbose_name_plural = _("tool limits")
        ordering = ["tool_name"]

    def __str__(self) -> str:
        return self.tool_name

    def end_temporary(self) -> None:
        """Replace the temporary values with the values after `until`, without saving them."""
        for name, value in self.then.items():
            setattr(self, name, value)
        self.until, self.then = None, {}

    def as_limits(self) -> ToolLimits:
        """Return the row as one level of the policy. An inactive row sets no limits."""
        if not self.is_active:
            return ToolLimits()
        return replace(super().as_limits(), enabled=self.tool_enabled)


IS_OVER = gettext_noop("The temporary limit has expired.")
REVERTS = gettext_noop("Reverts version %(version)s.")
REVERTS_AS = gettext_noop("Reverts version %(version)s. %(why)s")
_REASONS = StoredSentences((REVERTS_AS, REVERTS, IS_OVER))


class PolicyChange(Change):
    """One edit of a policy: its editor, its time, and the old and new values (append-only)."""

    subject = "governance.ToolPolicy"
    kind = "limits"
    named_by = "tool_name"

    tool_name = models.CharField(
        _("tool"),
        max_length=128,
        blank=True,
        db_index=True,
        help_text=_("Blank = the default limits."),
    )
    version = models.PositiveBigIntegerField(_("version"))
    reason = models.TextField(_("why"), blank=True)

    class Meta(Change.Meta):
        app_label = "governance"
        verbose_name = _("limit change")
        verbose_name_plural = _("limit changes")

    def __str__(self) -> str:
        return f"{self.tool_name or _('default')} v{self.version}"

    @property
    def why(self) -> str:
        """The reason, translated into the reader's language if the system gave it."""
        return _REASONS.translate(self.reason)

    @property
    def summary_at_tool(self) -> str:
        """The changes in one line, for the page of a tool. A change of the default limits is marked as such."""
        return self.summary if self.tool_name else f"{_('Default limits')}: {self.summary}"

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        """Return a field's value as people read it. The time in `until` has seconds and a time zone."""
        if name == "until" and isinstance(value, str):
            return time_text(datetime.fromisoformat(value))
        if name == "then" and isinstance(value, dict):
            return cls.describe_values(value) or super().describe_value(name, None)
        return super().describe_value(name, value)

    @classmethod
    def describe_values(cls, values: Mapping[str, Any]) -> str:
        """Return limits in one line, for example "total limit: 30 s"."""
        labels = {field.name: field.verbose_name for field in ToolPolicy._meta.fields}
        return "; ".join(
            f"{labels.get(name, name)}: {cls.describe_value(name, value)}"
            for name, value in values.items()
        )
