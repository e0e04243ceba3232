"""Rows of the processes that may own turns."""

import uuid
from enum import StrEnum

from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.model_fields import DatabaseTimeField
from turns.models import labels


class ProcessEnding(StrEnum):
    """The ways in which a process can end. Only `STOPPED` is orderly; after the others, turns are interrupted."""

    STOPPED = "stopped"  # it exited on its own
    DIED = "died"  # the operating system no longer lists it
    SILENT = "silent"  # its lease expired: it hangs, lost its connection, or died on another host


LOST = (ProcessEnding.DIED, ProcessEnding.SILENT)


class Process(models.Model):
    """A server process that may own turns. It renews its lease by setting `seen_at` to the database's time (H4).

    On the same host, `boot_id`, `pid_namespace`, `pid` and `start_ticks` show immediately whether it is alive.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    host = models.CharField(_("host"), max_length=255)
    boot_id = models.CharField(_("boot id"), max_length=64, blank=True)
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
    turn_limit = models.PositiveIntegerField(_("maximum turns"), default=0)
    has_shared_layer = models.BooleanField(
        _("receives messages from other processes"), default=False
    )
    started_at = DatabaseTimeField(_("started at"), auto_now_add=True)
    seen_at = models.DateTimeField(
        _("seen at"),
        null=True,
        help_text=_("When it last renewed its lease, by the database’s clock."),
    )
    code_version = models.CharField(_("version of the code"), max_length=64, blank=True)
    policy_version = models.PositiveBigIntegerField(
        _("version of the limits"),
        default=0,
        help_text=_("Limits version reported with the last heartbeat."),
    )
    abandoned = models.PositiveIntegerField(
        _("abandoned work"),
        default=0,
        help_text=_("Running bodies of abandoned calls, reported with the last heartbeat."),
    )
    draining_at = models.DateTimeField(_("draining since"), null=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)
    ending = models.CharField(
        _("how it ended"), max_length=16, blank=True, choices=labels.process_endings
    )
    lost_turns = models.PositiveIntegerField(
        _("lost turns"), default=0, help_text=_("Turns interrupted by its end.")
    )

    class Meta:
        app_label = "turns"
        verbose_name = _("process")
        verbose_name_plural = _("processes")
        ordering = ["-started_at"]
        indexes = [
            models.Index(
                fields=["role"], condition=models.Q(ended_at=None), name="turns_processes_live"
            ),
            models.Index(fields=["ending", "-ended_at"], name="turns_processes_ended"),
        ]

    def __str__(self) -> str:
        return self.name or f"{self.host}:{self.pid}"


class ToolReport(models.Model):
    """The tools that a process last reported as registered."""

    process = models.OneToOneField(
        Process,
        models.CASCADE,
        primary_key=True,
        related_name="tool_report",
    )
    tools = models.JSONField(default=list)

    class Meta:
        app_label = "turns"
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.process_id)
