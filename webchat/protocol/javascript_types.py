"""The protocol as a JavaScript module for the page: its constants, and the types of all frames in JSDoc.

`python -m webchat.protocol` writes it, so that the page and the server cannot disagree about a name.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from governance import CallStatus, CancelReason
from turns import EVENTS, MAIN_ARGUMENTS, TurnStatus
from webchat.protocol.client_frames import client_frames
from webchat.protocol.constants import PROTOCOL_VERSION, CloseCode
from webchat.protocol.json_schema import name_in, objects_of, schema_of, text_of
from webchat.protocol.server_frames import ANSWERS, event_frames

SCRIPT = Path("static/webchat/js/net/wire.js")
_WIDTH = 120
_HEAD = """/**
 * The protocol as the server has it: its constants, and the types of all frames.
 * Made by `python -m webchat.protocol` from `webchat/protocol/` and the events of `turns/core/`: change those.
 */
"""
_TYPES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def render() -> str:
    """Return the text of the module."""
    return "\n".join(
        (
            _HEAD,
            f"export const PROTOCOL_VERSION = {PROTOCOL_VERSION};\n",
            _close_codes(),
            *_values("CallStatus", "FINAL_CALL_STATUSES", CallStatus, _final(CallStatus)),
            *_values("TurnStatus", "FINAL_TURN_STATUSES", TurnStatus, _final(TurnStatus)),
            *_values("CancelReason", "CANCEL_REASONS", CancelReason, CancelReason),
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


def _values(
    type_name: str, name: str, all_of_them: Iterable[str], exported: Iterable[str]
) -> Iterator[str]:
    """A type of all values, and a list of those that the page asks for."""
    yield f"/** @typedef {{{'|'.join(_quoted(all_of_them))}}} {type_name} */\n"
    yield _list(name, exported)


def _list(name: str, values: Iterable[str]) -> str:
    """Lay it out as the formatter of the project would."""
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
    """Return the type of what a JSON Schema describes; `unknown` where it says nothing."""
    if "$ref" in schema:
        return name_in(schema)
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
