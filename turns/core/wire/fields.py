"""The types of fields that objects on the wire share."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

Milliseconds = Annotated[int, Field(ge=0)]
Limit = Milliseconds | None
Characters = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """Marks a text that has one of these values, for the schema. A row of the database gives it as a plain `str`."""

    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        object.__setattr__(self, "values", tuple(str(value) for value in values))

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Describe the values."""
        return core_schema.literal_schema(list(self.values))


LimitReached = Annotated[str, OneOf("total", "idle", "turn", "approval")]
Standing = Annotated[str, OneOf("asking", "parked", "working", "interrupted")]
