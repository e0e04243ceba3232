"""Generates the schemas in `docs/protocol.md`, and the constants and types of the chat page, from the frames.

`python -m webchat.protocol` writes both, so that documentation, page and server always use the same names.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from governance import CallStatus, CancelReason
from turns import EVENTS, MAIN_ARGUMENTS, TurnStatus
from webchat.protocol.client_frames import client_frames
from webchat.protocol.server_frames import ANSWERS, PROTOCOL_VERSION, CloseCode, event_frames

Schema = dict[str, Any]
PAGE = Path("docs/protocol.md")
BEGIN = "<!-- schemas: made by `python -m webchat.protocol` -->"
END = "<!-- end of schemas -->"
SCRIPT = Path("static/webchat/js/net/wire.js")
_IMPLIED = {"title", "additionalProperties"}
_WIDTH = 120
_HEAD = """/**
 * The constants of the protocol, and the types of all frames.
 *
 * `python -m webchat.protocol` generates this module from `webchat/protocol/` and the events in `turns/core/`. Change
 * those instead.
 */
"""
_TYPES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def schema_of(frame: type) -> Schema:
    """Return the JSON Schema of one frame without its title and description."""
    schema = TypeAdapter(frame).json_schema()
    required = ["type", *(name for name in schema.get("required", []) if name != "type")]
    fields = {"type": schema["properties"]["type"], **schema["properties"]}
    return {"type": "object", "properties": _fields(fields), "required": required}


def objects_of(frames: Iterable[type]) -> dict[str, Schema]:
    """Return the JSON Schemas of the objects that the frames contain, by name."""
    shared: Schema = {}
    for frame in frames:
        shared |= TypeAdapter(frame).json_schema().get("$defs", {})
    return {name: _plain(schema) for name, schema in sorted(shared.items())}


def _name_in(reference: Schema) -> str:
    name: str = reference["$ref"].rpartition("/")[2]
    return name


def type_of(frame: type) -> str:
    """Return the `type` of a frame on the wire."""
    name: str = TypeAdapter(frame).json_schema()["properties"]["type"]["const"]
    return name


def text_of(frame: type) -> str:
    """Return the description of a frame on one line."""
    return " ".join((frame.__doc__ or "").split())


def _plain(schema: Any) -> Any:
    """Return a schema without redundant keys."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _fields(part) if name == "properties" else _plain(part)
        for name, part in schema.items()
        if name not in _IMPLIED
    }


def _fields(properties: Schema) -> Schema:
    return {name: _plain(field) for name, field in properties.items()}


def docs() -> str:
    """Return the schemas of all frames as Markdown."""
    events = event_frames()
    return "\n".join(
        (
            BEGIN,
            *_frames_in_docs("Client → server", client_frames()),
            *_frames_in_docs("Server → client", ANSWERS),
            *_frames_in_docs("Events", events),
            *_objects_in_docs((*ANSWERS, *events)),
            END,
        )
    )


def refresh_docs(page: str) -> str:
    """Return the page with the current schemas."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{docs()}{after}"


def _frames_in_docs(title: str, frames: Iterable[type]) -> Iterator[str]:
    yield f"\n### {title}\n"
    for frame in frames:
        yield _entry(type_of(frame), text_of(frame), schema_of(frame))


def _objects_in_docs(frames: Iterable[type]) -> Iterator[str]:
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


def script() -> str:
    """Return the module with the protocol's constants, and the types of all frames in JSDoc."""
    return "\n".join(
        (
            _HEAD,
            f"export const PROTOCOL_VERSION = {PROTOCOL_VERSION};\n",
            _close_codes(),
            _type_of_values("CallStatus", CallStatus),
            _list("FINAL_CALL_STATUSES", _final(CallStatus)),
            _type_of_values("TurnStatus", TurnStatus),
            _list("FINAL_TURN_STATUSES", _final(TurnStatus)),
            _type_of_values("CancelReason", CancelReason),
            _list("MAIN_ARGUMENTS", MAIN_ARGUMENTS),
            _list(
                "EVENTS_AFTER_END", (name for name, event in EVENTS.items() if event.follows_end)
            ),
            *_objects((*ANSWERS, *event_frames())),
            *_frames("ClientFrame", "Frame", client_frames()),
            *_frames("AnswerFrame", "Frame", ANSWERS),
            *_frames("EventFrame", "Event", event_frames()),
            '/** @typedef {AnswerFrame|EventFrame} ServerFrame */\n/** @typedef {EventFrame["type"]} EventType */\n',
        )
    )


def _final(statuses: Iterable[Any]) -> list[str]:
    return [status for status in statuses if status.is_terminal]


def _close_codes() -> str:
    lines = "".join(f"  {code.name}: {code.value},\n" for code in CloseCode)
    return f"export const CLOSE_CODES = Object.freeze({{\n{lines}}});\n"


def _type_of_values(name: str, values: Iterable[str]) -> str:
    return f"/** @typedef {{{'|'.join(_quoted(values))}}} {name} */\n"


def _list(name: str, values: Iterable[str]) -> str:
    """Return the export of a list of strings, formatted like the project's formatter would."""
    texts = _quoted(values)
    line = f"export const {name} = Object.freeze([{', '.join(texts)}]);"
    if len(line) > _WIDTH:
        rows = "".join(f"  {text},\n" for text in texts)
        line = f"export const {name} = Object.freeze([\n{rows}]);"
    return f"/** @type {{ReadonlyArray<string>}} */\n{line}\n"


def _objects(frames: Iterable[type]) -> Iterator[str]:
    for name, schema in objects_of(frames).items():
        text = " ".join(schema.get("description", "").split())
        yield f"/**\n * {text}\n *\n * @typedef {{{_type(schema)}}} {name}\n */\n"


def _frames(name: str, ending: str, frames: tuple[type, ...]) -> Iterator[str]:
    names = [f"{frame.__name__.removesuffix(ending)}{ending}" for frame in frames]
    for type_name, frame in zip(names, frames, strict=True):
        yield f"/**\n * {text_of(frame)}\n *\n * @typedef {{{_type(schema_of(frame))}}} {type_name}\n */\n"
    yield f"/** @typedef {{{'|'.join(names)}}} {name} */\n"


def _quoted(values: Iterable[Any]) -> list[str]:
    return [json.dumps(str(value)) for value in values]


def _type(schema: dict[str, Any]) -> str:
    """Return the JSDoc type of a JSON Schema, or `unknown` for an empty schema."""
    if "$ref" in schema:
        return _name_in(schema)
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return "|".join(json.dumps(value) for value in schema["enum"])
    if "anyOf" in schema:
        return "|".join(_type(part) for part in schema["anyOf"])
    if schema.get("type") == "array":
        return f"ReadonlyArray<{_type(schema['items'])}>"
    if schema.get("type") == "object":
        return _object(schema)
    return _TYPES.get(schema.get("type", ""), "unknown")


def _object(schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return "Readonly<Record<string, any>>"
    required = schema.get("required", [])
    fields = (
        f"{name}{'' if name in required else '?'}: {_type(field)}"
        for name, field in schema["properties"].items()
    )
    return f"Readonly<{{{', '.join(fields)}}}>"
