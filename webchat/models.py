"""Rows of webchat: the tokens of clients that are not browsers, and who made and revoked them."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.time_formatting import time_text


class ApiToken(models.Model):
    """Lets a program act for a user. Only the hash is kept: the token itself is shown once, when it is made."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("user")
    )
    name = models.CharField(
        _("name"), max_length=100, help_text=_("What it is for, so that you know what you revoke.")
    )
    start = models.CharField(_("begins with"), max_length=16, editable=False)
    sha256 = models.CharField(_("hash"), max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
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
    """A token was made, or revoked: by whom and when (append-only). It outlives the token and its user."""

    subject = "webchat.ApiToken"

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
