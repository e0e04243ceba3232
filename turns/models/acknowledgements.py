"""Rows of acknowledgements of cancel words."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from governance import labels as governance_words


class Acknowledgement(models.Model):
    """A cancel word that took effect, and the answer to it, sent when all cancelled work has ended (C6, C8).

    It is shown with `turn` but is not a message, so no chat model reads it. `at` is null until the answer is sent.
    """

    request = models.OneToOneField(
        "turns.CancelRequest", models.CASCADE, related_name="acknowledgement"
    )
    turn = models.ForeignKey("turns.Turn", models.CASCADE, related_name="acknowledgements")
    said = models.CharField(_("cancel word"), max_length=200)
    source = models.CharField(_("channel"), max_length=16, choices=governance_words.cancel_sources)
    text = models.CharField(_("answer"), max_length=300, blank=True)
    at = models.DateTimeField(_("at"), null=True)

    class Meta:
        app_label = "turns"
        verbose_name = _("acknowledgement")
        verbose_name_plural = _("acknowledgements")
        ordering = ["pk"]
        indexes = [
            models.Index(fields=["request"], condition=Q(at=None), name="turns_unacknowledged")
        ]

    def __str__(self) -> str:
        return f"{self.said}: {self.text}"
