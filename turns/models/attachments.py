"""Rows of attachments: images and files that people send to agents."""

import uuid

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from governance.model_fields import DatabaseTimeField
from turns.core.wire import AttachmentContent


class Attachment(models.Model):
    """A file of a user, kept in a Django storage under the random name `path`.

    It belongs to no conversation until it is sent with a message; then it belongs to the last turn that used it.
    `status` only moves forward: `storing`, `stored`, `removing`. `text` is extracted from documents; images have a size
    in pixels. PDFs have a number of `pages`: 0 if the file cannot be opened, null if unknown.
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
    created_at = DatabaseTimeField(_("created at"), auto_now_add=True)

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
        return str(self.id)  # not its name, which is content that staff may not be allowed to see

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    def as_block(self) -> AttachmentContent:
        """Return the block that represents the file in a message."""
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
