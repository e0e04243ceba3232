"""JSON Schemas of all frames, as Markdown: the part of `docs/protocol.md` that is made from the code.

`python -m webchat.schemas docs/protocol.md` puts it between the markers of that page again.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from webchat.frames import ANSWERS, EVENTS
from webchat.protocol import CLIENT_FRAMES

BEGIN = "<!-- schemas: made by `python -m webchat.schemas docs/protocol.md` -->"
END = "<!-- end of schemas -->"


def schema_of(frame: type) -> dict[str, Any]:
    """Return the JSON Schema of one frame, without what its name and text say already."""
    schema = TypeAdapter(frame).json_schema()
    properties = {name: _plain(field) for name, field in schema["properties"].items()}
    required = ["type", *(name for name in schema.get("required", []) if name != "type")]
    return {"type": "object", "properties": properties, "required": required}


def render() -> str:
    """Return the schemas of all frames as Markdown."""
    return "\n".join(
        (
            BEGIN,
            *_section("Client → server", CLIENT_FRAMES),
            *_section("Server → client", ANSWERS),
            *_section("Events", EVENTS),
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
        yield f"#### `{schema['properties']['type']['const']}`\n"
        yield f"{' '.join((frame.__doc__ or '').split())}\n"
        yield f'```json\n{{\n  "type": "object",\n  "properties": {{\n{fields}\n  }},\n  "required": {json.dumps(schema["required"])}\n}}\n```\n'


def _plain(field: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in field.items() if key not in {"title", "additionalProperties"}
    }


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(refresh(path.read_text("utf-8")), "utf-8")
