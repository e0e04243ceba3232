"""The files themselves, in the storage that the settings name, under random names. Each function blocks."""

from uuid import uuid4

from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages
from django.utils.translation import gettext as _

from turns.conf import app_settings
from turns.exceptions import AttachmentRejected


def is_configured() -> bool:
    """Return whether anything can be attached here."""
    return bool(app_settings.ATTACHMENT_STORAGE)


def storage() -> Storage:
    """Return the storage. Raise `AttachmentRejected` where the settings name none."""
    if not is_configured():
        raise AttachmentRejected(_("Nothing can be attached on this site."))
    return storages[app_settings.ATTACHMENT_STORAGE]


def new_path() -> str:
    """Return a name that nobody can guess and that says nothing about the file."""
    name = uuid4().hex
    return f"attachments/{name[:2]}/{name}"


def write(path: str, content: bytes) -> None:
    """Store a file. A storage that would take another name for it has one of that name, which is never so."""
    kept = storage().save(path, ContentFile(content))
    if kept != path:
        storage().delete(kept)
        raise FileExistsError(path)


def read(path: str) -> bytes:
    """Return a file. Raise `OSError` if it is not there."""
    with storage().open(path) as file:
        content: bytes = file.read()
        return content


def remove(path: str) -> None:
    storage().delete(path)
