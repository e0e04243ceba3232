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
from governance.durations import to_seconds
from governance.model_fields import calls_at_once, span
from governance.time_formatting import time_text
from governance.translations import StoredSentences


class Limits(models.Model):
    """The limits that an administrator may set on a level; blank = not set here (T2).

    Edit them through `governance.services`: a row saved directly takes effect only when the version moves. `revision`
    counts the edits of this row, of deleted ones before it too, and detects conflicting ones.
    """

    timeout_ms = span(_("total limit"), _("0 = no limit. Blank = not set here."))
    idle_timeout_ms = span(
        _("idle limit"), _("Longest silence. 0 = no limit. Blank = not set here.")
    )
    ceiling_ms = span(
        _("ceiling for hints"),
        _("The most a call may ask for itself. 0 = no ceiling. Blank = not set here."),
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
        help_text=_("Whether a person must let a call through. Blank = not set here."),
    )
    approval_timeout_ms = span(
        _("approval limit"),
        _("How long a person may take to decide. 0 = no limit. Blank = not set here."),
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
        said: dict[str, Any] = {}
        for name in LIMITS:
            if hasattr(self, f"{name}_ms"):
                said[name] = to_seconds(getattr(self, f"{name}_ms"))
            elif hasattr(self, name):
                said[name] = getattr(self, name)
        said["approval"] = ApprovalRule(self.approval) if self.approval else None
        return ToolLimits(**said)

    def clean(self) -> None:
        """Refuse invalid limits."""
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
    until = models.DateTimeField(
        _("only until"),
        null=True,
        editable=False,
        help_text=_("By the database's clock; from then on the values of “then” count."),
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
        """Take the values that count after `until`; nothing is saved."""
        for name, value in self.then.items():
            setattr(self, name, value)
        self.until, self.then = None, {}

    def as_limits(self) -> ToolLimits:
        """Return the row as one level of the policy; an inactive override sets nothing."""
        if not self.is_active:
            return ToolLimits()
        return replace(super().as_limits(), enabled=self.tool_enabled)


IS_OVER = gettext_noop("The temporary limit is over.")
REVERTS = gettext_noop("Reverts version %(version)s.")
REVERTS_AS = gettext_noop("Reverts version %(version)s. %(why)s")
_REASONS = StoredSentences((REVERTS_AS, REVERTS, IS_OVER))


class PolicyChange(Change):
    """One edit of a policy: who changed which field from what to what, and when (append-only)."""

    subject = "governance.ToolPolicy"

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
        """The reason; what the system has written is in the language of whoever reads it."""
        return _REASONS.translate(self.reason)

    @property
    def summary_at_tool(self) -> str:
        """The changes in one line beside a tool: a change of the default limits says that it is one."""
        return self.summary if self.tool_name else f"{_('Default limits')}: {self.summary}"

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        """Return a field's value as people read it; an end to the second, with its zone."""
        if name == "until" and isinstance(value, str):
            return time_text(datetime.fromisoformat(value))
        if name == "then" and isinstance(value, dict):
            return cls.describe_values(value) or super().describe_value(name, None)
        return super().describe_value(name, value)

    @classmethod
    def describe_values(cls, values: Mapping[str, Any]) -> str:
        """Return limits in one line: "total limit: 30 s"."""
        labels = {field.name: field.verbose_name for field in ToolPolicy._meta.fields}
        return "; ".join(
            f"{labels.get(name, name)}: {cls.describe_value(name, value)}"
            for name, value in values.items()
        )
