"""Rows of acknowledgements: what people who have said a cancel word are told."""

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from governance import labels as governance_words


class Acknowledgement(models.Model):
    """That a cancel word was obeyed: what was said, and its answer (C6, C8). The answer is given once all has ended.

    It is shown with `turn` and is no message: no chat model reads it. `at` is null until it was given.
    """

    request = models.OneToOneField(
        "turns.CancelRequest", models.CASCADE, related_name="acknowledgement"
    )
    turn = models.ForeignKey("turns.Turn", models.CASCADE, related_name="acknowledgements")
    said = models.CharField(_("said"), max_length=200)
    source = models.CharField(_("means"), max_length=16, choices=governance_words.cancel_sources)
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
