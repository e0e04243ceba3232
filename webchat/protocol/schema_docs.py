"""JSON Schemas of all frames, as Markdown: the part of `docs/protocol.md` that is made from the code.

`python -m webchat.protocol` refreshes that page, and the module in which the chat page has the same frames as types.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from webchat.protocol.client_frames import CLIENT_FRAMES
from webchat.protocol.json_schema import schema_of, text_of, type_of
from webchat.protocol.server_frames import ANSWERS, event_frames

PAGE = Path("docs/protocol.md")
BEGIN = "<!-- schemas: made by `python -m webchat.protocol` -->"
END = "<!-- end of schemas -->"


def render() -> str:
    """Return the schemas of all frames as Markdown."""
    return "\n".join(
        (
            BEGIN,
            *_section("Client → server", CLIENT_FRAMES),
            *_section("Server → client", ANSWERS),
            *_section("Events", event_frames()),
            END,
        )
    )


def refresh(page: str) -> str:
    """Return the page with the schemas of today."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{render()}{after}"


def _section(title: str, frames: tuple[type, ...]) -> Iterator[str]:
    yield f"\n### {title}\n"
    for frame in frames:
        schema = schema_of(frame)
        fields = ",\n".join(
            f'    "{name}": {json.dumps(field)}' for name, field in schema["properties"].items()
        )
        yield f"#### `{type_of(frame)}`\n"
        yield f"{text_of(frame)}\n"
        yield f'```json\n{{\n  "type": "object",\n  "properties": {{\n{fields}\n  }},\n  "required": {json.dumps(schema["required"])}\n}}\n```\n'
