"""Builds the import map of the chat's scripts, for static files with hashes in their names.

Modules import each other by their plain names. Without the map, browsers would use outdated modules from their cache
after an update, or find no file if only those with hashes are served.
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
    """Return the hashed address of each module, keyed by the plain address that imports use.

    The result is empty if the addresses have no hashes. A page with its own import map must add these entries to its
    `imports`.
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
    """Return the `<script>` element with the map. It is empty if the map is empty or the page already has the element."""
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
        mark_safe(text),  # noqa: S308 - addresses of static files, and `<` is escaped, so the element cannot end early
    )
