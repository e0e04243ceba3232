"""Rows of turns, cancel requests and repairs.

The indexes are designed for SQLite without statistics: it chooses an index by its first columns, and a partial index
only if the query repeats its condition.
"""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from governance import labels as governance_words
from turns.core.turns import LIVE_STATUSES, TurnStatus
from turns.models import labels

_LIVE = [status.value for status in LIVE_STATUSES]


class Turn(models.Model):
    """The work on one user message, up to the end of the agent's answer.

    `number` orders the turns of a conversation; at most one of them is live. `epoch` increases whenever the owning
    process changes and fences off the writes of earlier owners. A turn started by a tool call has the calling turn as
    its `parent`. Its `root` is the person's turn at the top; the turns with the same root are a family. The result of a
    detached turn is delivered to the parent's conversation once. A turn that is `replaced_by` another is in no history,
    because its message or an earlier one was edited and sent again; `version` numbers these edits. `pruned_at` is when
    `prune` deleted its messages and calls. `summary` is the model's summary of the turns that its prompts left out.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(
        "turns.Conversation",
        models.CASCADE,
        related_name="turns",
        verbose_name=_("conversation"),
        db_index=False,
    )
    number = models.PositiveBigIntegerField(_("number"))
    parent = models.ForeignKey(
        "self", models.SET_NULL, null=True, related_name="children", verbose_name=_("parent turn")
    )
    root = models.ForeignKey(
        "self", models.SET_NULL, null=True, related_name="family", verbose_name=_("first turn")
    )
    parent_tool_id = models.CharField(_("parent's tool call"), max_length=200, blank=True)
    depth = models.PositiveSmallIntegerField(_("depth"), default=0)
    is_detached = models.BooleanField(
        _("detached"), default=False, help_text=_("Its parent does not wait for it.")
    )
    delivered_at = models.DateTimeField(_("delivered at"), null=True)
    replaced_by = models.ForeignKey(
        "self",
        models.CASCADE,
        null=True,
        related_name="replaced",
        verbose_name=_("replaced by"),
        db_index=False,
    )
    version = models.PositiveIntegerField(_("version of the message"), default=1, db_default=1)
    agent = models.CharField(_("agent"), max_length=64, blank=True)
    user_message = models.TextField(_("user message"))
    attachments = models.JSONField(_("attachments"), default=list)
    source = models.CharField(
        _("source"), max_length=16, default="typed", choices=labels.message_sources
    )
    client_id = models.CharField(_("client id"), max_length=64, null=True)  # noqa: DJ001 - null is not checked for uniqueness
    status = models.CharField(
        _("status"),
        max_length=16,
        default=TurnStatus.QUEUED,
        choices=labels.turn_statuses,
    )
    owner = models.ForeignKey(
        "turns.Process", models.SET_NULL, null=True, related_name="turns", verbose_name=_("owner")
    )
    epoch = models.PositiveIntegerField(_("epoch"), default=0)
    turn_timeout_ms = models.PositiveBigIntegerField(_("turn limit (ms)"), null=True)
    step_limit = models.PositiveIntegerField(_("step limit"), default=50)
    token_limit = models.PositiveBigIntegerField(_("token limit"), null=True)
    steps = models.PositiveIntegerField(_("steps"), default=0)
    tool_call_count = models.PositiveIntegerField(_("tool calls"), default=0)
    queued_at = models.DateTimeField(_("queued at"))
    dispatched_at = models.DateTimeField(_("dispatched at"), null=True)
    started_at = models.DateTimeField(_("started at"), null=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)
    pruned_at = models.DateTimeField(_("pruned at"), null=True)
    duration_ms = models.PositiveBigIntegerField(_("ran (ms)"), null=True)
    ended_by_reason = models.CharField(
        _("ended by"), max_length=16, blank=True, choices=governance_words.cancel_reasons
    )
    ended_by_source = models.CharField(
        _("ended via"), max_length=16, blank=True, choices=governance_words.cancel_sources
    )
    ended_by_name = models.CharField(_("ended by whom"), max_length=150, blank=True)
    error_code = models.CharField(_("error code"), max_length=64, blank=True)
    error_message = models.CharField(_("error"), max_length=500, blank=True)
    error_detail = models.CharField(
        _("provider message"), max_length=1_000, blank=True, default="", db_default=""
    )
    usage = models.JSONField(_("usage"), default=dict)
    prompt_change = models.CharField(max_length=16, blank=True, default="", db_default="")
    summary = models.TextField(_("summary"), blank=True, default="", db_default="")
    traceparent = models.CharField(_("trace"), max_length=64, blank=True, default="", db_default="")

    class Meta:
        app_label = "turns"
        verbose_name = _("turn")
        verbose_name_plural = _("turns")
        ordering = ["-queued_at"]
        permissions = [
            ("view_all", _("Can view the turns of all users")),
            ("cancel_any", _("Can cancel the turns of all users")),
            ("decide_any", _("Can decide on the tool calls of all users")),
            ("forget_user", _("Can remove a person’s content and name")),
        ]
        constraints = [
            models.UniqueConstraint(fields=["conversation", "number"], name="turns_number_once"),
            models.UniqueConstraint(
                fields=["conversation", "client_id"], name="turns_client_id_once"
            ),
            models.UniqueConstraint(
                fields=["conversation"], condition=Q(status__in=_LIVE), name="turns_one_live_turn"
            ),
        ]
        indexes = [
            models.Index(fields=["-queued_at", "-id"], name="turns_recent"),
            models.Index(fields=["status", "queued_at"], name="turns_by_status"),
            models.Index(fields=["conversation", "status"], name="turns_of_conversation"),
            models.Index(fields=["agent", "-queued_at"], name="turns_of_agent"),
            models.Index(
                fields=["owner", "status"], condition=Q(ended_at=None), name="turns_live_of_owner"
            ),
            models.Index(
                fields=["parent"],
                condition=Q(is_detached=True, delivered_at=None),
                name="turns_undelivered",
            ),
            models.Index(
                fields=["replaced_by"],
                condition=Q(replaced_by__isnull=False),
                name="turns_replaced",
            ),
            models.Index(
                fields=["ended_at", "id"], condition=~Q(user_message=""), name="turns_to_prune"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.conversation_id} #{self.number}"


class CancelRequest(models.Model):
    """A stored request to cancel a turn or one of its calls, with its user, channel, reason and latency (C2, C12)."""

    turn = models.ForeignKey(
        Turn,
        models.CASCADE,
        related_name="cancel_requests",
        verbose_name=_("turn"),
        db_index=False,
    )
    tool_id = models.CharField(
        _("tool call"), max_length=200, blank=True, help_text=_("Blank = the whole turn.")
    )
    reason = models.CharField(_("reason"), max_length=16, choices=governance_words.cancel_reasons)
    source = models.CharField(_("channel"), max_length=16, choices=governance_words.cancel_sources)
    mode = models.CharField(_("mode"), max_length=16, default="now", choices=labels.cancel_modes)
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", verbose_name=_("by")
    )
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    note = models.CharField(_("note"), max_length=500, blank=True)
    requested_at = models.DateTimeField(_("requested at"))
    settled_at = models.DateTimeField(_("settled at"), null=True)
    settled_ms = models.PositiveBigIntegerField(_("requested → settled (ms)"), null=True)
    outcome = models.CharField(_("outcome"), max_length=20, blank=True)
    running_tools = models.JSONField(_("running tools"), default=list)

    class Meta:
        app_label = "turns"
        verbose_name = _("cancel request")
        verbose_name_plural = _("cancel requests")
        ordering = ["-requested_at"]
        constraints = [
            models.UniqueConstraint(fields=["turn", "tool_id"], name="turns_one_cancel_request")
        ]
        indexes = [
            models.Index(fields=["-requested_at", "-id"], name="turns_cancel_request_recent"),
            models.Index(fields=["by_name", "-requested_at"], name="turns_cancel_request_by"),
            models.Index(
                fields=["turn"], condition=Q(settled_at=None), name="turns_open_cancel_requests"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reason} {self.turn_id} {self.tool_id}".strip()


class CancelledTurn(CancelRequest):
    """A proxy model for requests to cancel whole turns, which the admin shows in a separate list."""

    class Meta:
        app_label = "turns"
        proxy = True
        default_permissions = ()
        verbose_name = _("cancelled turn")
        verbose_name_plural = _("cancelled turns")


class Repair(models.Model):
    """One correction of a history, kept for the audit (H3)."""

    conversation = models.ForeignKey(
        "turns.Conversation", models.CASCADE, related_name="repairs", verbose_name=_("conversation")
    )
    turn = models.ForeignKey(
        Turn, models.CASCADE, null=True, related_name="repairs", verbose_name=_("turn")
    )
    tool_id = models.CharField(_("tool call"), max_length=200, blank=True)
    kind = models.CharField(_("kind"), max_length=32, choices=labels.repair_kinds)
    cause = models.CharField(_("cause"), max_length=32, choices=labels.repair_causes)
    text = models.TextField(_("inserted text"), blank=True)
    found_when = models.CharField(_("found"), max_length=32, choices=labels.found_when)
    at = models.DateTimeField(_("at"))

    class Meta:
        app_label = "turns"
        verbose_name = _("repair")
        verbose_name_plural = _("repairs")
        ordering = ["-at", "-pk"]
        indexes = [models.Index(fields=["-at", "-id"], name="turns_repair_recent")]

    def __str__(self) -> str:
        return f"{self.kind} {self.tool_id}"


class RunningTurn(Turn):
    """A proxy model for active turns, which the admin shows in a separate list."""

    class Meta:
        app_label = "turns"
        proxy = True
        default_permissions = ()
        verbose_name = _("running turn")
        verbose_name_plural = _("running now")


class DeadlineOrder(models.Model):
    """A stored request to change a running call's limit, applied by the turn's owner (T9, C12)."""

    turn = models.ForeignKey(
        Turn, models.CASCADE, related_name="deadline_orders", verbose_name=_("turn")
    )
    tool_id = models.CharField(_("tool call"), max_length=200)
    timeout_ms = models.PositiveBigIntegerField(_("new limit (ms)"), null=True)
    extend_ms = models.PositiveBigIntegerField(_("added to the limit (ms)"), null=True)
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    note = models.CharField(_("note"), max_length=500, blank=True, db_default="")
    requested_at = models.DateTimeField(_("requested at"), db_default=Now())
    settled_at = models.DateTimeField(_("settled at"), null=True)

    class Meta:
        app_label = "turns"
        verbose_name = _("limit request")
        verbose_name_plural = _("limit requests")
        ordering = ["pk"]
        indexes = [
            models.Index(
                fields=["turn"], condition=Q(settled_at=None), name="turns_open_deadline_orders"
            )
        ]

    def __str__(self) -> str:
        return f"{self.turn_id} {self.tool_id}"
