"""The files in the configured storage, under random names. All functions block."""

from uuid import uuid4

from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.utils.translation import gettext as _

from turns.conf import app_settings
from turns.exceptions import AttachmentRejected


def is_configured() -> bool:
    """Return whether this site accepts attachments."""
    return bool(app_settings.ATTACHMENT_STORAGE)


def storage() -> Storage:
    """Return the storage. Raise `AttachmentRejected` if none is configured."""
    if not is_configured():
        raise AttachmentRejected(_("This site does not accept attachments."))
    return storages[app_settings.ATTACHMENT_STORAGE]


def new_path() -> str:
    """Return an unguessable name that reveals nothing about the file."""
    name = uuid4().hex
    return f"attachments/{name[:2]}/{name}"


def write(path: str, content: bytes) -> None:
    """Store a file under exactly this path. Raise `FileExistsError` if the storage chose another path because
    this one is taken.
    """
    stored_path = storage().save(path, ContentFile(content))
    if stored_path != path:
        storage().delete(stored_path)
        raise FileExistsError(path)


def read(path: str) -> bytes:
    """Return a file. Raise `OSError` if it does not exist."""
    with storage().open(path) as file:
        content: bytes = file.read()
        return content


def remove(path: str) -> None:
    storage().delete(path)
