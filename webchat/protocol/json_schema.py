"""The JSON Schema of frames and their objects, for the documentation and the page's types."""

from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

Schema = dict[str, Any]
_IMPLIED = {"title", "additionalProperties"}


def schema_of(frame: type) -> Schema:
    """Return the JSON Schema of one frame, without what its name and text say already."""
    schema = TypeAdapter(frame).json_schema()
    required = ["type", *(name for name in schema.get("required", []) if name != "type")]
    fields = {"type": schema["properties"]["type"], **schema["properties"]}
    return {"type": "object", "properties": _fields(fields), "required": required}


def objects_of(frames: Iterable[type]) -> dict[str, Schema]:
    """Return the JSON Schemas of the objects that frames refer to, by name."""
    shared: Schema = {}
    for frame in frames:
        shared |= TypeAdapter(frame).json_schema().get("$defs", {})
    return {name: _plain(schema) for name, schema in sorted(shared.items())}


def name_in(reference: Schema) -> str:
    name: str = reference["$ref"].rpartition("/")[2]
    return name


def type_of(frame: type) -> str:
    """Return the name of a frame on the wire."""
    name: str = TypeAdapter(frame).json_schema()["properties"]["type"]["const"]
    return name


def text_of(frame: type) -> str:
    """Return what a frame says of itself, on one line."""
    return " ".join((frame.__doc__ or "").split())


def _plain(schema: Any) -> Any:
    """Leave out what goes without saying."""
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
