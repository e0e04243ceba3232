"""The administrators' policy for turns without viewers (C11)."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.durations import time_text
from governance.model_fields import DatabaseTimeField, PositiveDurationMsField


class DisconnectPolicy(models.Model):
    """The policy, of which there is one row. With `DETACH`, turns continue without viewers for `unattended_limit_ms`,
    or without a limit if that is 0.
    """

    CANCEL_AFTER_GRACE = "cancel_after_grace"
    CANCEL_AT_ONCE = "cancel_at_once"
    DETACH = "detach"

    policy = models.CharField(
        _("when the last viewer leaves"),
        max_length=24,
        default=CANCEL_AFTER_GRACE,
        choices=[
            (CANCEL_AFTER_GRACE, _("cancel after a grace period")),
            (CANCEL_AT_ONCE, _("cancel immediately")),
            (DETACH, _("let it continue")),
        ],
    )
    grace_ms = PositiveDurationMsField(_("grace period"), default=30_000)
    unattended_limit_ms = PositiveDurationMsField(
        _("unattended limit"), default=3_600_000, help_text=_("0 = no limit.")
    )
    updated_at = DatabaseTimeField(_("changed at"), auto_now=True)

    class Meta:
        app_label = "turns"
        verbose_name = _("disconnect policy")
        verbose_name_plural = _("disconnect policy")
        constraints = [
            models.CheckConstraint(condition=models.Q(pk=1), name="turns_one_disconnect_policy")
        ]

    def __str__(self) -> str:
        return str(self._meta.verbose_name)


class DisconnectPolicyChange(Change):
    """An edit of the disconnect policy, with its user, its time, and the old and new values (append-only).

    It is visible to users who may view the policy.
    """

    subject = "turns.DisconnectPolicy"
    kind = "disconnects"

    class Meta(Change.Meta):
        app_label = "turns"
        default_permissions = ()
        verbose_name = _("disconnect policy change")
        verbose_name_plural = _("disconnect policy changes")

    def __str__(self) -> str:
        return time_text(self.at)

    @classmethod
    def describe_value(cls, name: str, value: object) -> str:
        if name == "policy":
            words = dict(DisconnectPolicy._meta.get_field("policy").flatchoices)
            return str(words.get(value, value))
        if name == "grace_ms" and not value:
            return str(_("none"))
        return super().describe_value(name, value)
