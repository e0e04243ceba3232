"""The body of an HTTP response, which is read up to a limit on its decompressed size."""

import asyncio
import re
import zlib
from dataclasses import dataclass
from typing import Protocol

import httpx

from governance.core.exceptions import ToolFailed
from governance.core.excerpts import spaced
from governance.core.tools import ToolContext
from governance.toolbox.workspace import shown

_REPORT_INTERVAL = 0.2
_SNIFF = 2048
_GZIP = 31  # the window size that makes zlib expect a gzip header
_TEXTUAL = re.compile(
    r"text/.+|application/(json|xml|javascript|ecmascript|x-ndjson|yaml|x-yaml|toml|sql|x-sh)|[^/]+/.+\+(json|xml|yaml)"
)
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
# Only these are accepted, because some of Python's codecs are not character sets, and some are very slow.
_CHARSET = re.compile(
    r"utf-?8|utf-?16([lb]e)?|(us-)?ascii|latin-?1|iso-?8859-\d+|windows-\d+|cp\d+|koi8-[ru]|shift[-_]jis|euc-(jp|kr)"
    r"|gb2312|gbk|gb18030|big5|iso-2022-jp",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBody:
    """A response body and the URL that it came from. `is_whole` is `False` if the body was cut at the limit."""

    url: str
    status: int
    media_type: str
    charset: str
    content: bytes
    is_whole: bool

    @property
    def size(self) -> int:
        """The number of bytes after decompression."""
        return len(self.content)

    @property
    def is_text(self) -> bool:
        """Whether the body is text: its media type is textual, or it has no type and no NUL byte near its start."""
        if self.media_type:
            return _TEXTUAL.fullmatch(self.media_type) is not None
        return b"\0" not in self.content[:_SNIFF]

    @property
    def is_html(self) -> bool:
        return self.media_type in _HTML

    def decode(self) -> str:
        """Return the body as text, in which U+FFFD replaces invalid bytes."""
        match = _META_CHARSET.search(self.content[:_SNIFF]) if self.is_html else None
        charset = self.charset or (match[1].decode("ascii") if match else "")
        try:
            return self.content.decode(
                charset if _CHARSET.fullmatch(charset) else "utf-8", "replace"
            )
        except LookupError:
            return self.content.decode("utf-8", "replace")


class _Decoder(Protocol):
    @property
    def has_ended(self) -> bool:
        """Whether the compressed body has ended, so that any further bytes are to be ignored."""
        ...

    def decode(self, data: bytes, *, room: int) -> bytes:
        """Decompress the next bytes, and return at most `room` bytes."""
        ...


class _Plain:
    has_ended = False

    def decode(self, data: bytes, *, room: int) -> bytes:
        return data[:room]


class _Gzip:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_GZIP)

    @property
    def has_ended(self) -> bool:
        return self._inflate.eof

    def decode(self, data: bytes, *, room: int) -> bytes:
        try:
            return self._inflate.decompress(data, room)
        except zlib.error:
            raise ToolFailed(
                "The server sent compressed bytes that cannot be decompressed."
            ) from None


async def read_body(response: httpx.Response, context: ToolContext, *, limit: int) -> HttpBody:
    """Read up to `limit` bytes of the body, and report progress.

    Raise `ToolFailed` if the response is successful but not text.
    """
    media_type, _, parameters = response.headers.get("Content-Type", "").partition(";")
    charset = re.search(r"charset=[\"']?([\w.:-]{1,40})", parameters, re.IGNORECASE)
    media_type = shown(media_type.strip().lower())
    if response.is_success and media_type and not _TEXTUAL.fullmatch(media_type):
        raise ToolFailed(f"The document is {media_type}: not text, so it is not shown.")
    content, is_whole = await _read(response, context, limit=limit)
    body = HttpBody(
        url=str(response.url),
        status=response.status_code,
        media_type=media_type,
        charset=charset[1] if charset else "",
        content=content,
        is_whole=is_whole,
    )
    if response.is_success and not body.is_text:
        raise ToolFailed("The document is binary, so it is not shown.")
    return body


async def _read(
    response: httpx.Response, context: ToolContext, *, limit: int
) -> tuple[bytes, bool]:
    decoder = _decoder(response)
    total = _length(response)
    loop = asyncio.get_running_loop()
    content, received, reported = bytearray(), 0, 0.0
    async for chunk in response.aiter_raw():
        received += len(chunk)
        content += decoder.decode(chunk, room=limit + 1 - len(content))
        if loop.time() - reported >= _REPORT_INTERVAL:
            reported = loop.time()
            context.progress(f"{spaced(received)} bytes", progress=received, total=total)
        if len(content) > limit:
            return bytes(content[:limit]), False
        if decoder.has_ended:
            break
    return bytes(content), True


def _decoder(response: httpx.Response) -> _Decoder:
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return _Plain()
    if encoding in {"gzip", "x-gzip"}:
        return _Gzip()
    raise ToolFailed(
        f"The server used the compression {shown(encoding)!r}, which is not supported."
    )


def _length(response: httpx.Response) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 16 else None
