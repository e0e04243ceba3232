"""Rows of turns: conversations, turns, messages, the event log, requests to cancel, repairs, owning processes."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from turns.core.turns import LIVE_STATUSES, TurnStatus

_LIVE = [status.value for status in LIVE_STATUSES]


class Process(models.Model):
    """A server process that may own turns; `boot_id`, `pid` and `start_ticks` tell on the same host if it is alive."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    host = models.CharField(_("host"), max_length=255)
    boot_id = models.CharField(_("boot"), max_length=64, blank=True)
    pid = models.PositiveIntegerField(_("pid"))
    start_ticks = models.BigIntegerField(_("start"), default=0)
    started_at = models.DateTimeField(_("started at"), auto_now_add=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)

    class Meta:
        verbose_name = _("process")
        verbose_name_plural = _("processes")
        ordering = ["-started_at"]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Conversation(models.Model):
    """A series of turns of one user; `last_seq` numbers its events without a gap, `last_position` its messages."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("owner")
    )
    title = models.CharField(_("title"), max_length=200, blank=True)
    agent = models.CharField(_("agent"), max_length=64, blank=True)
    last_seq = models.PositiveBigIntegerField(_("last event"), default=0)
    last_position = models.PositiveBigIntegerField(_("last message"), default=0)
    last_number = models.PositiveBigIntegerField(_("last turn"), default=0)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        ordering = ["-updated_at"]
        indexes = [
            models.Index(fields=["owner", "-updated_at"], name="turns_conversation_of_owner")
        ]

    def __str__(self) -> str:
        return self.title or str(self.id)


class Turn(models.Model):
    """One user message up to the end of the agent's answer.

    `number` orders the turns of a conversation; `epoch` grows with every change of owner and fences the writes of an
    earlier one; at most one turn of a conversation is live.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="turns", verbose_name=_("conversation")
    )
    number = models.PositiveBigIntegerField(_("number"))
    parent = models.ForeignKey(
        "self", models.SET_NULL, null=True, related_name="children", verbose_name=_("parent turn")
    )
    agent = models.CharField(_("agent"), max_length=64, blank=True)
    user_message = models.TextField(_("user message"))
    source = models.CharField(_("source"), max_length=16, default="typed")
    client_id = models.CharField(_("client id"), max_length=64, null=True)  # noqa: DJ001 - null stays out of the unique rule
    status = models.CharField(
        _("status"),
        max_length=16,
        default=TurnStatus.QUEUED,
        choices=[(s.value, s.value) for s in TurnStatus],
    )
    owner = models.ForeignKey(
        Process, models.SET_NULL, null=True, related_name="turns", verbose_name=_("owner")
    )
    epoch = models.PositiveIntegerField(_("epoch"), default=0)
    turn_timeout_ms = models.PositiveBigIntegerField(_("turn limit (ms)"), null=True)
    step_limit = models.PositiveIntegerField(_("step limit"), default=50)
    steps = models.PositiveIntegerField(_("steps"), default=0)
    tool_call_count = models.PositiveIntegerField(_("tool calls"), default=0)
    queued_at = models.DateTimeField(_("queued at"))
    started_at = models.DateTimeField(_("started at"), null=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)
    duration_ms = models.PositiveBigIntegerField(_("ran (ms)"), null=True)
    ended_by_reason = models.CharField(_("ended by"), max_length=16, blank=True)
    ended_by_source = models.CharField(_("means"), max_length=16, blank=True)
    ended_by_name = models.CharField(_("ended by whom"), max_length=150, blank=True)
    error_code = models.CharField(_("error code"), max_length=64, blank=True)
    error_message = models.CharField(_("error"), max_length=500, blank=True)
    usage = models.JSONField(_("usage"), default=dict)

    class Meta:
        verbose_name = _("turn")
        verbose_name_plural = _("turns")
        ordering = ["-queued_at"]
        permissions = [
            ("view_all", _("Can see the turns of everybody")),
            ("cancel_any", _("Can cancel the turns of everybody")),
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
            models.Index(fields=["status", "queued_at"], name="turns_by_status"),
            models.Index(
                fields=["owner"], condition=Q(status__in=_LIVE), name="turns_live_of_owner"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.conversation_id} #{self.number}"


class Message(models.Model):
    """A piece of history: text and tool_use blocks. Results of calls live on the calls' own rows (invariant 10).

    `content` holds blocks as in the protocol's `history`. While it streams, `is_streaming` is set and the text so far
    is in `content`; `interrupted` marks an answer that was cut off (H2).
    """

    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="messages", verbose_name=_("conversation")
    )
    turn = models.ForeignKey(Turn, models.CASCADE, related_name="messages", verbose_name=_("turn"))
    position = models.PositiveBigIntegerField(_("position"))
    step = models.PositiveIntegerField(_("step"), default=0)
    role = models.CharField(
        _("role"), max_length=16, choices=[("user", _("user")), ("assistant", _("assistant"))]
    )
    content = models.JSONField(_("content"), default=list)
    is_streaming = models.BooleanField(_("is streaming"), default=False)
    interrupted = models.BooleanField(_("interrupted"), default=False)
    at = models.DateTimeField(_("at"))

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["conversation", "position"]
        constraints = [
            models.UniqueConstraint(fields=["conversation", "position"], name="turns_position_once")
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.position}"


class Event(models.Model):
    """A fact with a number: what sockets, tabs and processes see of a conversation, in order (append-only)."""

    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="+", verbose_name=_("conversation")
    )
    turn = models.ForeignKey(Turn, models.CASCADE, related_name="events", verbose_name=_("turn"))
    seq = models.PositiveBigIntegerField(_("number"))
    type = models.CharField(_("type"), max_length=32)
    payload = models.JSONField(_("payload"), default=dict)
    at = models.DateTimeField(_("at"))

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        ordering = ["conversation", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["conversation", "seq"], name="turns_seq_once")
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


class CancelRequest(models.Model):
    """A stored wish to end a turn or one of its calls: who, how, why, and how long it took to come true (C2, C12)."""

    turn = models.ForeignKey(
        Turn, models.CASCADE, related_name="cancel_requests", verbose_name=_("turn")
    )
    tool_id = models.CharField(
        _("tool call"), max_length=200, blank=True, help_text=_("Blank = the whole turn.")
    )
    reason = models.CharField(_("reason"), max_length=16)
    source = models.CharField(_("means"), max_length=16)
    mode = models.CharField(_("mode"), max_length=16, default="now")
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+", verbose_name=_("by")
    )
    by_name = models.CharField(_("by"), max_length=150, blank=True)
    note = models.CharField(_("note"), max_length=500, blank=True)
    requested_at = models.DateTimeField(_("requested at"))
    settled_at = models.DateTimeField(_("settled at"), null=True)
    settled_ms = models.PositiveBigIntegerField(_("requested → settled (ms)"), null=True)
    outcome = models.CharField(_("outcome"), max_length=20, blank=True)
    running_tools = models.JSONField(_("what was running"), default=list)

    class Meta:
        verbose_name = _("cancel request")
        verbose_name_plural = _("cancel requests")
        ordering = ["-requested_at"]
        constraints = [
            models.UniqueConstraint(fields=["turn", "tool_id"], name="turns_one_cancel_request")
        ]
        indexes = [
            models.Index(
                fields=["turn"], condition=Q(settled_at=None), name="turns_open_cancel_requests"
            )
        ]

    def __str__(self) -> str:
        return f"{self.reason} {self.turn_id} {self.tool_id}".strip()


class Operation(models.Model):
    """What a client asked for under an id of its own, with its outcome: a repeated one gets the same answer.

    `op_id` is the client's; that of a message that was a cancel word begins with "message:".
    """

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="+")
    turn = models.ForeignKey(Turn, models.CASCADE, related_name="+")
    op_id = models.CharField(max_length=80)
    outcome = models.CharField(max_length=20)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["conversation", "op_id"], name="turns_op_once")
        ]

    def __str__(self) -> str:
        return self.op_id


class Repair(models.Model):
    """One correction of a history, kept for the audit (H3)."""

    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="repairs", verbose_name=_("conversation")
    )
    turn = models.ForeignKey(
        Turn, models.CASCADE, null=True, related_name="repairs", verbose_name=_("turn")
    )
    tool_id = models.CharField(_("tool call"), max_length=200, blank=True)
    kind = models.CharField(_("kind"), max_length=32)
    cause = models.CharField(_("cause"), max_length=32)
    text = models.TextField(_("inserted text"), blank=True)
    found_when = models.CharField(_("found when"), max_length=32)
    at = models.DateTimeField(_("at"))

    class Meta:
        verbose_name = _("repair")
        verbose_name_plural = _("repairs")
        ordering = ["-at", "-pk"]

    def __str__(self) -> str:
        return f"{self.kind} {self.tool_id}"
