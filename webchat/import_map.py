"""The import map of our scripts for static files with hashed names.

Modules import each other by their plain names. Without the map, the browser would use cached old modules after an
update, or find no file if only the hashed ones are served.
"""

import json
from posixpath import basename
from urllib.parse import urljoin

from django.contrib.staticfiles.storage import staticfiles_storage
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from governance.csp import nonce_of

MODULES = "webchat/js/"


def import_map() -> dict[str, str]:
    """Return each module's hashed address by the address that imports use; empty if the addresses have no hashes.

    A page with its own import map must add these to its `imports`.
    """
    entries = {}
    for name in sorted(getattr(staticfiles_storage, "hashed_files", ())):
        if name.startswith(MODULES) and name.endswith(".js"):
            address = staticfiles_storage.url(name)
            plain = urljoin(address, basename(name))  # the address that relative imports resolve to
            if plain != address:
                entries[plain] = address
    return entries


def import_map_script(request: HttpRequest | None, *, nonce: str = "") -> SafeString:
    """Return the `<script>` element of the map, or an empty string if there is no map or the page already has it."""
    if getattr(request, "has_chat_import_map", False):
        return SafeString()
    entries = import_map()
    if not entries:
        return SafeString()
    if request is not None:
        setattr(request, "has_chat_import_map", True)  # noqa: B010 - the type of a request has no such attribute
        nonce = nonce or nonce_of(request)
    text = json.dumps({"imports": entries}).replace("<", "\\u003c")
    return format_html(
        '<script type="importmap"{}>{}</script>',
        format_html(' nonce="{}"', nonce) if nonce else "",
        mark_safe(text),  # noqa: S308 - addresses of our own files, and no element can end in it
    )
