"""The acts of people and the system: one row for each act of any kind (append-only)."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance import labels


class Activity(models.Model):
    """One act of a person or of the system: who did what, when and why, with the old and new values.

    A row contains everything that the list shows, so that it can outlive the people, turns and rows that it refers to.
    A blank `by_name` means the system itself. `subject` names the tool, agent, token or list that was changed. `group`
    is the turn, if there is one. `source` ("app.Model") and `source_id` refer to the row with the details. `changes`
    maps each field of that row to its value, or to [old, new]. `why` is a reason that staff gave. `note` is text that a
    user typed, so it is content.
    """

    kind = models.CharField(_("kind"), max_length=16, choices=labels.activity_kinds)
    action = models.CharField(_("action"), max_length=16, choices=labels.activity_actions)
    subject = models.CharField(_("what"), max_length=200, blank=True)
    group = models.CharField(_("turn"), max_length=64, blank=True)
    changes = models.JSONField(
        _("old → new"), default=dict, help_text=_("field → value, or [old, new]")
    )
    why = models.TextField(_("why"), blank=True)
    note = models.CharField(_("note"), max_length=500, blank=True)
    source = models.CharField(_("table"), max_length=100, blank=True)
    source_id = models.CharField(_("row"), max_length=64, blank=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", verbose_name=_("by")
    )
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    at = models.DateTimeField(_("at"))

    class Meta:
        app_label = "governance"
        verbose_name = _("activity")
        verbose_name_plural = _("activity")
        ordering = ["-at", "-pk"]
        indexes = [
            models.Index(fields=["-at", "-id"], name="governance_activity_recent"),
            models.Index(fields=["by_name", "-at", "-id"], name="governance_activity_by"),
            models.Index(fields=["kind", "-at", "-id"], name="governance_activity_kind"),
            models.Index(fields=["subject", "-at", "-id"], name="governance_activity_subject"),
            models.Index(fields=["group"], name="governance_activity_group"),
        ]

    def __str__(self) -> str:
        return " ".join(part for part in (self.kind, self.action, self.subject) if part)
