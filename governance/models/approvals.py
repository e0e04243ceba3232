"""People's decisions on tool calls that need approval, and their answers to the forms of running calls (D1 to D4)."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from governance import labels
from governance.core.policy import ApprovalRule


class Approval(models.Model):
    """One question about a call, and its one decision, which is blank until a compare-and-set stores it (D4).

    `group` and `call_id` identify the call. `definition` is the digest of the tool as it was shown. An approval with
    `remember` also covers later calls of the same definition in the same `scope`, until `lapsed_at`. `host` is the
    first host that the call would reach, if any. `rule` is the approval rule when the question was asked. `is_late` is
    set if a person denied the call after the question had expired; such a row is kept, but had no effect. If `form` is
    null, the question was whether the call may run. Otherwise, a running call showed this form and asked for `answers`.
    """

    group = models.CharField(_("group"), max_length=64)
    call_id = models.CharField(_("call id"), max_length=200)
    scope = models.CharField(_("scope"), max_length=64)
    tool_name = models.CharField(_("tool"), max_length=128)
    tool_title = models.CharField(_("title"), max_length=80, blank=True, default="")
    tool_server = models.CharField(_("MCP server"), max_length=100, blank=True, default="")
    input = models.JSONField(_("input"), default=dict)
    definition = models.CharField(_("definition"), max_length=64)
    host = models.CharField(_("host"), max_length=253, blank=True)
    rule = models.CharField(
        _("rule"),
        max_length=24,
        default=ApprovalRule.ALWAYS.value,
        choices=labels.approval_rules,
    )
    requested_at = models.DateTimeField(_("requested at"))
    expires_at = models.DateTimeField(_("expires at"), null=True)
    decision = models.CharField(
        _("decision"),
        max_length=16,
        blank=True,
        choices=labels.decisions,
    )
    decided_at = models.DateTimeField(_("decided at"), null=True)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", verbose_name=_("by")
    )
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)
    remember = models.BooleanField(_("for the whole conversation"), default=False)
    lapsed_at = models.DateTimeField(_("lapsed at"), null=True)
    form = models.JSONField(_("form"), null=True)
    answers = models.JSONField(_("answers"), null=True)
    is_late = models.BooleanField(_("too late"), default=False)

    class Meta:
        app_label = "governance"
        verbose_name = _("approval")
        verbose_name_plural = _("approvals")
        ordering = ["-requested_at", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["group", "call_id"],
                condition=Q(decision=""),
                name="governance_one_open_approval",
            )
        ]
        indexes = [
            models.Index(
                fields=["scope", "tool_name"],
                condition=Q(decision="approved", remember=True),
                name="governance_remembered_approval",
            ),
            models.Index(fields=["group"], name="governance_approval_group"),
            models.Index(fields=["-requested_at", "-id"], name="governance_approval_recent"),
            models.Index(fields=["scope", "-requested_at"], name="governance_approval_scope"),
            models.Index(fields=["call_id"], name="governance_approval_call"),
            models.Index(fields=["tool_name", "-requested_at"], name="governance_approval_tool"),
            models.Index(fields=["by_name", "-requested_at"], name="governance_approval_by"),
        ]

    def __str__(self) -> str:
        return f"{self.tool_name} {self.decision or _('not decided')}"
