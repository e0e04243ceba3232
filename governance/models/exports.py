"""Exports of history lists: one row for each records the person, the list and the number of rows (append-only)."""

from django.apps import apps
from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.model_fields import DatabaseTimeField


class Export(models.Model):
    """One export of a list. `rows` is increased before each batch is sent, so it is never too low if the process dies.

    `source` is the model of the list, as "app.Model". `terms` contains the values of filters that may contain content;
    `filters` has “…” in their place. `finished_at` is null if the export was stopped or is still running.
    """

    source = models.CharField(_("list"), max_length=100)
    filters = models.JSONField(
        _("filters"), default=dict, help_text=_("parameter → values, as in the list's address")
    )
    terms = models.JSONField(
        _("search terms"),
        default=dict,
        help_text=_("Search terms that may contain user content, stored separately."),
    )
    format = models.CharField(
        _("format"), max_length=8, choices=[("csv", _("CSV")), ("json", _("JSON"))]
    )
    has_content = models.BooleanField(_("with content"), default=False)
    rows = models.PositiveBigIntegerField(_("rows"), default=0)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", verbose_name=_("by")
    )
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    at = DatabaseTimeField(_("at"), auto_now_add=True)
    finished_at = models.DateTimeField(_("finished at"), null=True)

    class Meta:
        app_label = "governance"
        verbose_name = _("export")
        verbose_name_plural = _("exports")
        ordering = ["-at", "-pk"]

    def __str__(self) -> str:
        return f"{self.source_name} ({self.format})"

    @property
    def source_name(self) -> str:
        """The name of the list, or its model's label if the model no longer exists."""
        try:
            return str(apps.get_model(self.source)._meta.verbose_name_plural)
        except LookupError:
            return self.source
