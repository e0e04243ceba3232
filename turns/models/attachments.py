"""Rows of attachments: the images and files that people give to agents with their messages."""

import uuid

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from turns.core.wire import AttachmentContent


class Attachment(models.Model):
    """A file of a user. The file itself is in a storage of Django's, under the random name `path`.

    It belongs to no conversation until a message claims it, and to the last turn that has. `status` moves one way:
    `storing`, `stored`, `removing`. `text` is what a reader finds in a document; an image has its size in pixels.
    A PDF has the number of its `pages`: 0 where it cannot be opened, none where nobody could look.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", verbose_name=_("owner")
    )
    conversation = models.ForeignKey(
        "turns.Conversation",
        models.CASCADE,
        null=True,
        related_name="attachments",
        verbose_name=_("conversation"),
    )
    turn = models.ForeignKey(
        "turns.Turn", models.SET_NULL, null=True, related_name="+", verbose_name=_("turn")
    )
    status = models.CharField(
        _("status"),
        max_length=16,
        default="storing",
        choices=[("storing", _("storing")), ("stored", _("stored")), ("removing", _("removing"))],
    )
    name = models.CharField(_("name"), max_length=200)
    media_type = models.CharField(_("type"), max_length=100)
    size = models.PositiveBigIntegerField(_("size (bytes)"))
    width = models.PositiveIntegerField(_("width"), null=True)
    height = models.PositiveIntegerField(_("height"), null=True)
    pages = models.PositiveIntegerField(_("pages"), null=True)
    text = models.TextField(_("text"), blank=True)
    path = models.CharField(_("path"), max_length=200)
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        app_label = "turns"
        verbose_name = _("attachment")
        verbose_name_plural = _("attachments")
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="turns_attachment_recent"),
            models.Index(
                fields=["created_at"],
                condition=models.Q(conversation__isnull=True),
                name="turns_attachment_unclaimed",
            ),
            models.Index(
                fields=["status"],
                condition=models.Q(status="removing"),
                name="turns_attachment_removing",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)  # its name is content, which not everybody may see

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    def as_block(self) -> AttachmentContent:
        """Return the block that stands for it in a message."""
        block: AttachmentContent = {
            "type": "image" if self.is_image else "document",
            "attachment_id": str(self.pk),
            "name": self.name,
            "media_type": self.media_type,
            "size": self.size,
        }
        if self.width is None or self.height is None:
            return block
        return {**block, "width": self.width, "height": self.height}
