"""The administrators' limits: one default row, one override for each tool, and every edit of them."""

from dataclasses import replace

from django.conf import settings
from django.core.exceptions import FieldDoesNotExist
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance import validation
from governance.core.policy import ToolLimits
from governance.durations import format_limit, to_seconds

_MOST_CALLS = 10_000
CALLS_AT_ONCE = [
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
        validators=CALLS_AT_ONCE,
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
