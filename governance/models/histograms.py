"""Durations of calls, rolled up per tool and hour, and per tool and day. These rows outlive the calls."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class ToolHour(models.Model):
    """The calls of one tool that were requested within one hour.

    `bins` counts the calls by how they ended and how long they ran, in the format of `CallDurations.as_bins`. An hour
    is counted again while it has `open_calls`, which are calls that had not ended when it was counted.
    """

    tool_name = models.CharField(_("tool"), max_length=128)
    hour = models.DateTimeField(_("hour"), help_text=_("The start of the hour."))
    calls = models.PositiveIntegerField(_("calls that ran"), default=0)
    open_calls = models.PositiveIntegerField(_("calls that had not ended"), default=0)
    bins = models.JSONField(_("durations"), default=dict)

    class Meta:
        app_label = "governance"
        verbose_name = _("hourly durations of a tool")
        verbose_name_plural = _("hourly durations of tools")
        ordering = ["hour", "tool_name"]
        constraints = [
            models.UniqueConstraint(fields=["hour", "tool_name"], name="governance_tool_hour_once")
        ]
        indexes = [
            # Not partial: SQLite cannot use a partial index for a value that is bound to the statement.
            models.Index(fields=["open_calls"], name="governance_tool_hour_open")
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.hour:%Y-%m-%d %H}"


class ToolDay(models.Model):
    """The hours of one tool within a UTC day, added up, so that a month can be read quickly."""

    tool_name = models.CharField(_("tool"), max_length=128)
    day = models.DateTimeField(_("day"), help_text=_("The start of the day, in UTC."))
    bins = models.JSONField(_("durations"), default=dict)

    class Meta:
        app_label = "governance"
        verbose_name = _("daily durations of a tool")
        verbose_name_plural = _("daily durations of tools")
        ordering = ["day", "tool_name"]
        constraints = [
            models.UniqueConstraint(fields=["day", "tool_name"], name="governance_tool_day_once")
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.day:%Y-%m-%d}"


class RolledUp(models.Model):
    """The one row that records which hours are rolled up: from `since` up to, but not including, `until`."""

    since = models.DateTimeField(_("since"))
    until = models.DateTimeField(_("until"))

    class Meta:
        app_label = "governance"
        verbose_name = _("roll-up of durations")
        verbose_name_plural = _("roll-ups of durations")
        constraints = [
            models.CheckConstraint(condition=models.Q(pk=1), name="governance_one_roll_up")
        ]

    def __str__(self) -> str:
        return f"{self.since:%Y-%m-%d %H} – {self.until:%Y-%m-%d %H}"
