"""JSON Schemas of all frames, as Markdown: the part of `docs/protocol.md` that is made from the code.

`python -m webchat.protocol` refreshes that page, and the module in which the chat page has the same frames as types.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from webchat.protocol.client_frames import client_frames
from webchat.protocol.json_schema import Schema, objects_of, schema_of, text_of, type_of
from webchat.protocol.server_frames import ANSWERS, event_frames

PAGE = Path("docs/protocol.md")
BEGIN = "<!-- schemas: made by `python -m webchat.protocol` -->"
END = "<!-- end of schemas -->"


def render() -> str:
    """Return the schemas of all frames as Markdown."""
    events = event_frames()
    return "\n".join(
        (
            BEGIN,
            *_frames("Client → server", client_frames()),
            *_frames("Server → client", ANSWERS),
            *_frames("Events", events),
            *_objects((*ANSWERS, *events)),
            END,
        )
    )


def refresh(page: str) -> str:
    """Return the page with the schemas of today."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{render()}{after}"


def _frames(title: str, frames: Iterable[type]) -> Iterator[str]:
    yield f"\n### {title}\n"
    for frame in frames:
        yield _entry(type_of(frame), text_of(frame), schema_of(frame))


def _objects(frames: Iterable[type]) -> Iterator[str]:
    yield "\n### Objects in frames\n"
    for name, schema in objects_of(frames).items():
        yield _entry(name, " ".join(schema["description"].split()), schema)


def _entry(name: str, text: str, schema: Schema) -> str:
    fields = ",\n".join(
        f'    "{name}": {json.dumps(field)}' for name, field in schema["properties"].items()
    )
    required = json.dumps(schema.get("required", []))
    return (
        f"#### `{name}`\n\n{text}\n\n"
        f'```json\n{{\n  "type": "object",\n  "properties": {{\n{fields}\n  }},\n  "required": {required}\n}}\n```\n'
    )
