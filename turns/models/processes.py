"""Rows of the processes that may own turns."""

import uuid

from django.db import models
from django.utils.translation import gettext_lazy as _


class Process(models.Model):
    """A server process that may own turns, and its lease: renewed in `seen_at` by the database's clock (H4).

    `boot_id`, `pid_namespace`, `pid` and `start_ticks` tell on the same host at once whether it is alive.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    host = models.CharField(_("host"), max_length=255)
    boot_id = models.CharField(_("boot"), max_length=64, blank=True)
    pid = models.PositiveIntegerField(_("pid"))
    start_ticks = models.BigIntegerField(_("start"), default=0)
    pid_namespace = models.CharField(_("pid namespace"), max_length=64, blank=True)
    name = models.CharField(_("name"), max_length=255, blank=True)
    role = models.CharField(
        _("role"),
        max_length=16,
        default="embedded",
        choices=[(name, name) for name in ("embedded", "web", "runner")],
    )
    turn_limit = models.PositiveIntegerField(_("turns at once"), default=0)
    has_shared_layer = models.BooleanField(_("hears other processes"), default=False)
    started_at = models.DateTimeField(_("started at"), auto_now_add=True)
    seen_at = models.DateTimeField(
        _("seen at"),
        null=True,
        help_text=_("When it last renewed its lease, by the database's clock."),
    )
    code_version = models.CharField(_("version of the code"), max_length=64, blank=True)
    policy_version = models.PositiveBigIntegerField(
        _("version of the limits"), default=0, help_text=_("That it ran with when it was seen.")
    )
    abandoned = models.PositiveIntegerField(
        _("abandoned work"),
        default=0,
        help_text=_("Bodies of calls that outlived their calls when it was seen."),
    )
    draining_at = models.DateTimeField(_("draining since"), null=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)

    class Meta:
        app_label = "turns"
        verbose_name = _("process")
        verbose_name_plural = _("processes")
        ordering = ["-started_at"]
        indexes = [
            models.Index(
                fields=["seen_at"], condition=models.Q(ended_at=None), name="turns_processes_alive"
            )
        ]

    def __str__(self) -> str:
        return self.name or f"{self.host}:{self.pid}"


class ToolReport(models.Model):
    """The tools that are registered in a process, as it has reported them last."""

    process = models.OneToOneField(
        Process,
        models.CASCADE,
        primary_key=True,
        related_name="tool_report",
        # an older version that still runs may delete the row of a process, and does not know of this one
        db_constraint=False,
    )
    tools = models.JSONField(default=list)

    class Meta:
        app_label = "turns"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.process_id)
