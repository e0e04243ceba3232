"""Models of webchat: API tokens, and audit entries for their creation and revocation."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.durations import time_text
from governance.model_fields import DatabaseTimeField


class ApiToken(models.Model):
    """An API token with which a program acts for a user.

    Only a hash is stored, so the token is shown only when it is issued.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    name = models.CharField(
        _("name"),
        max_length=100,
        help_text=_("What the token is for, so that you know which one to revoke."),
    )
    start = models.CharField(_("first characters"), max_length=16, editable=False)
    sha256 = models.CharField(_("hash"), max_length=64, unique=True, editable=False)
    created_at = DatabaseTimeField(_("created at"), auto_now_add=True)
    last_used_at = models.DateTimeField(_("last used at"), null=True, editable=False)
    revoked_at = models.DateTimeField(_("revoked at"), null=True, editable=False)

    class Meta:
        app_label = "webchat"
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.start}…)"


class ApiTokenChange(Change):
    """An audit entry for the creation or revocation of a token. It is append-only and outlives the token and its user."""

    subject = "webchat.ApiToken"
    kind = "token"
    named_by = "token_name"

    token = models.ForeignKey(
        ApiToken,
        models.SET_NULL,
        null=True,
        related_name="audit",
        verbose_name=_("token"),
    )
    token_name = models.CharField(_("token"), max_length=130)
    whose = models.CharField(_("user"), max_length=150)

    class Meta(Change.Meta):
        app_label = "webchat"
        verbose_name = _("API token change")
        verbose_name_plural = _("API token changes")

    def __str__(self) -> str:
        return f"{self.token_name} {time_text(self.at)}"
