"""Who took which list of history away, and how much of it (append-only)."""

from django.apps import apps
from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

HIDDEN = "…"


class Export(models.Model):
    """One export of a list. `rows` is raised before each batch is sent: it holds whatever becomes of the process.

    `source` is the model of the list, as "app.Model". `terms` are those values of the filters that may be content; in
    `filters` stands `HIDDEN` for them. `finished_at` null = it was stopped, or still goes on.
    """

    source = models.CharField(_("list"), max_length=100)
    filters = models.JSONField(
        _("filters"), default=dict, help_text=_("parameter → values, as in the list's address")
    )
    terms = models.JSONField(_("search terms"), default=dict, help_text=_("the same; content"))
    format = models.CharField(
        _("format"), max_length=8, choices=[("csv", _("CSV")), ("json", _("JSON"))]
    )
    has_content = models.BooleanField(_("with content"), default=False)
    rows = models.PositiveBigIntegerField(_("rows"), default=0)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", verbose_name=_("by")
    )
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    at = models.DateTimeField(_("at"), auto_now_add=True)
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
        """What the list is called; its model's label once that is gone."""
        try:
            return str(apps.get_model(self.source)._meta.verbose_name_plural)
        except LookupError:
            return self.source
