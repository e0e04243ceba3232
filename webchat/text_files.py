"""Texts that a browser shows as text or keeps as a file. They may come from a model or a tool, so nothing in them is markup."""

from django.http import HttpResponse
from django.utils.http import content_disposition_header
from django.utils.text import get_valid_filename

DESCRIPTION = {
    "description": "The text",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
_LONGEST_NAME = 100


def answer(
    text: str, *, name: str, is_download: bool, content_type: str = "text/plain"
) -> HttpResponse:
    """Return the text under a file name. No browser takes it for a page."""
    stem, _, kind = get_valid_filename(name).lstrip(".").rpartition(".")
    headers = {
        "Content-Disposition": content_disposition_header(
            is_download, f"{stem[:_LONGEST_NAME] or 'text'}.{kind}"
        ),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'; sandbox",
    }
    return HttpResponse(text, content_type=f"{content_type}; charset=utf-8", headers=headers)
