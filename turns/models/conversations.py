"""Rows of conversations: their messages, their event log, what clients asked for, who is looking.

A foreign key has no index of its own where a rule or another index begins with it. Each row costs one less.
"""

import uuid

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.time_formatting import time_text


class Conversation(models.Model):
    """A series of turns of one user; `last_seq` numbers its events without a gap, `last_position` its messages.

    `agent` is an agent's name, blank = the default one. A parked conversation starts no turn until a person lets it.
    `unattended_since` is set when its last viewer has left turns behind, those up to `attended_number` (C11).
    `history_version` grows when something changes that stood in the history already. As long as it stays, the messages
    up to `valid_position` are known to be a valid history. `edited_at` tells lists that they are behind: it was
    renamed, pinned or deleted. A deleted one exists for nobody; `emptied_at` is when its contents were gone, too.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        related_name="+",
        verbose_name=_("owner"),
        db_index=False,
    )
    title = models.CharField(_("title"), max_length=200, blank=True)
    agent = models.CharField(_("agent"), max_length=64, blank=True)
    parent = models.ForeignKey(
        "self",
        models.CASCADE,
        null=True,
        related_name="children",
        verbose_name=_("parent conversation"),
        help_text=_("Set where a sub-agent works here for a turn of another conversation."),
    )
    last_seq = models.PositiveBigIntegerField(_("last event"), default=0)
    last_position = models.PositiveBigIntegerField(_("last message"), default=0)
    last_number = models.PositiveBigIntegerField(_("last turn"), default=0)
    history_version = models.PositiveBigIntegerField(default=0)
    valid_position = models.PositiveBigIntegerField(default=0)
    unattended_since = models.DateTimeField(_("unattended since"), null=True)
    attended_number = models.PositiveBigIntegerField(_("last turn that had a viewer"), default=0)
    parked_at = models.DateTimeField(_("parked at"), null=True)
    parked_reason = models.CharField(_("parked because"), max_length=200, blank=True)
    pinned_at = models.DateTimeField(_("pinned at"), null=True)
    edited_at = models.DateTimeField(_("edited at"), null=True)
    deleted_at = models.DateTimeField(_("deleted at"), null=True)
    emptied_at = models.DateTimeField(_("emptied at"), null=True)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    updated_at = models.DateTimeField(_("updated at"), auto_now=True)

    class Meta:
        app_label = "turns"
        verbose_name = _("conversation")
        verbose_name_plural = _("conversations")
        ordering = ["-updated_at"]
        indexes = [
            models.Index(fields=["-updated_at", "-id"], name="turns_conversation_recent"),
            models.Index(
                fields=["owner", "-updated_at", "-id"], name="turns_conversation_of_owner"
            ),
            models.Index(
                fields=["owner", "-pinned_at"],
                condition=models.Q(pinned_at__isnull=False),
                name="turns_pinned_of_owner",
            ),
            models.Index(
                fields=["unattended_since"],
                condition=models.Q(unattended_since__isnull=False),
                name="turns_unattended",
            ),
            models.Index(
                fields=["owner"],
                condition=models.Q(parked_at__isnull=False),
                name="turns_parked_of_owner",
            ),
            models.Index(
                fields=["owner", "-edited_at"],
                condition=models.Q(edited_at__isnull=False),
                name="turns_edited_of_owner",
            ),
            models.Index(
                fields=["parent", "deleted_at"],
                condition=models.Q(deleted_at__isnull=False, emptied_at__isnull=True),
                name="turns_to_empty",
            ),
            models.Index(
                fields=["deleted_at"],
                condition=models.Q(deleted_at__isnull=False),
                name="turns_deleted",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)  # its title is content, which not everybody may see


class ConversationChange(Change):
    """The deletion of a conversation: who deleted it, and when (append-only). It outlives the row."""

    subject = "turns.Conversation"

    conversation_id = models.UUIDField(_("conversation"), db_index=True)

    class Meta(Change.Meta):
        app_label = "turns"
        verbose_name = _("deleted conversation")
        verbose_name_plural = _("deleted conversations")

    def __str__(self) -> str:
        return f"{self.conversation_id} {time_text(self.at)}"


class Message(models.Model):
    """A piece of history: text and tool_use blocks. Results of calls live on the calls' own rows (invariant 10).

    `content` holds blocks as in the protocol's `history`. While it streams, `is_streaming` is set and the text so far
    is in `content`. `interrupted` marks an answer that was cut off (H2).
    """

    conversation = models.ForeignKey(
        Conversation,
        models.CASCADE,
        related_name="messages",
        verbose_name=_("conversation"),
        db_index=False,
    )
    turn = models.ForeignKey(
        "turns.Turn", models.CASCADE, related_name="messages", verbose_name=_("turn")
    )
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
        app_label = "turns"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        ordering = ["conversation_id", "position"]
        constraints = [
            models.UniqueConstraint(fields=["conversation", "position"], name="turns_position_once")
        ]

    def __str__(self) -> str:
        return f"{self.role} {self.position}"


class Event(models.Model):
    """A fact with a number: what sockets, tabs and processes see of a conversation, in order (append-only)."""

    conversation = models.ForeignKey(
        Conversation,
        models.CASCADE,
        related_name="+",
        verbose_name=_("conversation"),
        db_index=False,
    )
    turn = models.ForeignKey(
        "turns.Turn", models.CASCADE, related_name="events", verbose_name=_("turn")
    )
    seq = models.PositiveBigIntegerField(_("number"))
    type = models.CharField(_("type"), max_length=32)
    payload = models.JSONField(_("payload"), default=dict)
    at = models.DateTimeField(_("at"))

    class Meta:
        app_label = "turns"
        verbose_name = _("event")
        verbose_name_plural = _("events")
        ordering = ["conversation_id", "seq"]
        constraints = [
            models.UniqueConstraint(fields=["conversation", "seq"], name="turns_seq_once")
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.type}"


class Operation(models.Model):
    """What a client asked for under an id of its own, with its outcome. A repeated one gets the same answer.

    `op_id` is the client's; that of a message that was a cancel word begins with "message:".
    """

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="+", db_index=False)
    turn = models.ForeignKey("turns.Turn", models.CASCADE, related_name="+")
    op_id = models.CharField(max_length=80)
    outcome = models.CharField(max_length=20)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "turns"
        constraints = [
            models.UniqueConstraint(fields=["conversation", "op_id"], name="turns_op_once")
        ]

    def __str__(self) -> str:
        return self.op_id


class MessageTally(models.Model):
    """In which seconds of the last minute a user has sent messages, and how many in each (P4). The clock is the database's."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="+"
    )
    times = models.JSONField(default=list)

    class Meta:
        app_label = "turns"

    def __str__(self) -> str:
        return f"{self.user_id}: {sum(count for _at, count in self.times)}"


class Viewer(models.Model):
    """An open socket that looks at a conversation, in whatever process it ends (C11)."""

    process = models.ForeignKey("turns.Process", models.CASCADE, related_name="viewers")
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="viewers")
    key = models.CharField(max_length=100, unique=True)
    since = models.DateTimeField()

    class Meta:
        app_label = "turns"

    def __str__(self) -> str:
        return self.key
