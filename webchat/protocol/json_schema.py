"""The JSON Schema of a frame, as the documentation shows it and the types of the page have it."""

from typing import Any

from pydantic import TypeAdapter

_IMPLIED = {"title", "additionalProperties"}


def schema_of(frame: type) -> dict[str, Any]:
    """Return the JSON Schema of one frame, without what its name and text say already."""
    schema = TypeAdapter(frame).json_schema()
    properties = _fields(schema["properties"], schema.get("$defs", {}))
    required = ["type", *(name for name in schema.get("required", []) if name != "type")]
    return {"type": "object", "properties": properties, "required": required}


def type_of(frame: type) -> str:
    """Return the name of a frame on the wire."""
    name: str = TypeAdapter(frame).json_schema()["properties"]["type"]["const"]
    return name


def text_of(frame: type) -> str:
    """Return what a frame says of itself, on one line."""
    return " ".join((frame.__doc__ or "").split())


def _plain(schema: Any, shared: dict[str, Any]) -> Any:
    """Put what is shared where it is used, and leave out what goes without saying."""
    if isinstance(schema, list):
        return [_plain(part, shared) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _plain(shared[schema["$ref"].rpartition("/")[2]], shared)
    return {
        name: _fields(part, shared) if name == "properties" else _plain(part, shared)
        for name, part in schema.items()
        if name not in _IMPLIED
    }


def _fields(properties: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    return {name: _plain(field, shared) for name, field in properties.items()}
