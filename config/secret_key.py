"""Creates a secret key for a site without one, in a private file beside the database."""

import os
import tempfile
from pathlib import Path

from django.core.management.utils import get_random_secret_key

from governance.private_files import make_directory


def read_or_create(path: Path) -> str:
    """Return the key in `path`, and create it if needed. Of several concurrent callers, only one creates it."""
    if not path.exists():
        _create(path)
    return path.read_text("ascii")


def _create(path: Path) -> None:
    make_directory(path.parent)
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(get_random_secret_key())
        # A hard link makes the whole content visible atomically, and never replaces the key of another process.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)
