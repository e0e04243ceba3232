"""Rows of conversations: messages, event log, operations of clients, viewers.

To make inserts cheaper, a foreign key has no separate index if a constraint or another index starts with it.
"""

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.audit import Change
from governance.durations import time_text
from governance.model_fields import DatabaseTimeField


class Conversation(models.Model):
    """A series of turns of one user. `last_seq` numbers its events without gaps, and `last_position` its messages.

    `agent` is the name of its agent; if it is blank, the default agent answers. A parked conversation starts no turns
    until a person resumes it. `unattended_since` is set when the last viewer disconnects while turns are active;
    `attended_number` is the number of the last of these turns (C11). `history_version` increases when the existing
    history changes. As long as it is unchanged, the messages up to `valid_position` form a valid history. `prompt_head`
    describes the last prompt and the turn since which prompts were only extended; `prompt_change` is why the next one
    will not extend it. `context` describes the part of the messages that prompts still contain. `edited_at` is when it
    was last renamed, pinned or deleted, which makes lists outdated. A deleted conversation is hidden from everybody;
    `emptied_at` is when its contents were removed. A row that was read with a lock has the database's time in
    `read_at`.
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
        help_text=_("Set if a sub-agent works here for a turn of another conversation."),
    )
    last_seq = models.PositiveBigIntegerField(_("last event"), default=0)
    last_position = models.PositiveBigIntegerField(_("last message"), default=0)
    last_number = models.PositiveBigIntegerField(_("last turn"), default=0)
    history_version = models.PositiveBigIntegerField(default=0)
    valid_position = models.PositiveBigIntegerField(default=0)
    prompt_head = models.JSONField(default=dict)
    prompt_change = models.CharField(max_length=16, blank=True, default="", db_default="")
    context = models.JSONField(default=dict, db_default={})
    unattended_since = models.DateTimeField(_("unattended since"), null=True)
    attended_number = models.PositiveBigIntegerField(_("last turn that had a viewer"), default=0)
    parked_at = models.DateTimeField(_("parked at"), null=True)
    parked_reason = models.CharField(_("parked because"), max_length=200, blank=True)
    pinned_at = models.DateTimeField(_("pinned at"), null=True)
    edited_at = models.DateTimeField(_("edited at"), null=True)
    deleted_at = models.DateTimeField(_("deleted at"), null=True)
    emptied_at = models.DateTimeField(_("emptied at"), null=True)
    created_at = DatabaseTimeField(_("created at"), auto_now_add=True)
    updated_at = DatabaseTimeField(_("updated at"), auto_now=True)

    read_at: datetime

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
        return str(self.id)  # not its title, which is content that staff may not be allowed to see


class ConversationChange(Change):
    """A record of who deleted a conversation, and when (append-only). It outlives the conversation's row."""

    subject = "turns.Conversation"

    conversation_id = models.UUIDField(_("conversation"), db_index=True)

    class Meta(Change.Meta):
        app_label = "turns"
        verbose_name = _("deleted conversation")
        verbose_name_plural = _("deleted conversations")

    def __str__(self) -> str:
        return f"{self.conversation_id} {time_text(self.at)}"


class Message(models.Model):
    """A message of the history: text and tool_use blocks. Results are in the rows of their calls (invariant 10).

    `content` contains blocks as in the protocol's `history`; while `is_streaming`, it contains the text so far.
    `thoughts` are the model's thoughts before the message. `interrupted` marks an answer that was cut off (H2). `usage`
    is the number of tokens that an answer used. `provider_parts` is the answer in its provider's format, with thoughts,
    which only a chat model reads. `note` is the text about an unfinished previous turn that the model read before the
    message.
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
    usage = models.JSONField(_("usage"), null=True)
    provider_parts = models.JSONField(null=True)
    thoughts = models.JSONField(null=True)
    note = models.TextField(blank=True, default="", db_default="")
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
    """A numbered event of a conversation (append-only). All sockets, tabs and processes read events in this order."""

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
    """A client's request with its id and outcome, so that a repeated request gets the same response.

    `op_id` is chosen by the client; for a message that was a cancel word, it begins with "message:".
    """

    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="+", db_index=False)
    turn = models.ForeignKey("turns.Turn", models.CASCADE, related_name="+")
    op_id = models.CharField(max_length=80)
    outcome = models.CharField(max_length=20)
    at = DatabaseTimeField(auto_now_add=True)

    class Meta:
        app_label = "turns"
        constraints = [
            models.UniqueConstraint(fields=["conversation", "op_id"], name="turns_op_once")
        ]

    def __str__(self) -> str:
        return self.op_id


class MessageTally(models.Model):
    """The number of messages that a user sent in each second of the last minute, by the database's clock (P4)."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True, related_name="+"
    )
    times = models.JSONField(default=list)

    class Meta:
        app_label = "turns"

    def __str__(self) -> str:
        return f"{self.user_id}: {sum(count for _at, count in self.times)}"


class Viewer(models.Model):
    """An open socket that shows a conversation, in any process (C11)."""

    process = models.ForeignKey("turns.Process", models.CASCADE, related_name="viewers")
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="viewers")
    key = models.CharField(max_length=100, unique=True)
    since = models.DateTimeField()

    class Meta:
        app_label = "turns"

    def __str__(self) -> str:
        return self.key
