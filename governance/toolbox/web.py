"""The `web_fetch` tool: one page or document of the public web as text (G1)."""

import asyncio
from typing import Annotated

from pydantic import Field

from governance.core.excerpts import shortened, spaced
from governance.core.registry import make_tool
from governance.core.tools import Tool, ToolContext
from governance.toolbox.client import Authorities, WebClient, parse
from governance.toolbox.html_text import html_to_text
from governance.toolbox.http_body import HttpBody
from governance.toolbox.known_hosts import unknown_host_of
from governance.toolbox.settings import SettingsSource, ToolboxSettings

_TIMEOUT = 60.0


def make_web_fetch(settings: SettingsSource) -> Tool:
    return make_tool(
        Web(settings).web_fetch,
        title="Fetch a web page",
        timeout=_TIMEOUT,
        unknown_host=unknown_host_of(settings),
    )


class Web:
    """Fetches as the settings of the moment allow."""

    def __init__(self, settings: SettingsSource) -> None:
        self._settings = settings
        self._authorities = Authorities()

    async def web_fetch(
        self,
        context: ToolContext,
        url: Annotated[str, Field(min_length=1, description="http:// or https://")],
        max_chars: Annotated[
            int, Field(ge=100, le=200_000, description="Characters to return.")
        ] = 20_000,
    ) -> str:
        """Fetch a page or a document from the web and return its text; HTML is made readable."""
        settings = self._settings()
        client = WebClient(context, settings=settings, tls=await self._authorities.load())
        body = await client.fetch(parse(url))
        return await asyncio.to_thread(
            _render, body, context, settings=settings, max_chars=max_chars
        )


def _render(
    body: HttpBody, context: ToolContext, *, settings: ToolboxSettings, max_chars: int
) -> str:
    """Return the text for the model. Runs in a thread: a page takes long to parse."""
    text, title, whole = body.decode(), "", body.is_whole
    if body.is_html:
        page, parsed = html_to_text(
            text,
            body.url,
            is_cancelled=lambda: context.is_cancelled,
            within=settings.web_parse_timeout,
        )
        text, title, whole = page.text, page.title, whole and parsed
    head = f"{body.url} · {body.media_type or 'no type given'} · {spaced(body.size)} bytes"
    lines = [
        head,
        *([f"Title: {shortened(title, limit=300)}"] if title else []),
        "",
        text[:max_chars] or "(no text)",
    ]
    if len(text) > max_chars:
        lines.append(
            f"… {spaced(len(text) - max_chars)} characters left out; ask with a larger max_chars …"
        )
    if not whole:
        lines.append("… the document is larger than what is read of it …")
    return "\n".join(lines).replace("\0", "\ufffd")
