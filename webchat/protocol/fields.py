"""Types of the fields that clients send, in frames and in requests of the API."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

MAX_LIMIT_MS = 31_536_000_000  # a year: enough for everything, small enough for every database


def _without_nul(text: str) -> str:
    if "\x00" in text:  # PostgreSQL cannot store it
        raise PydanticCustomError("nul_character", "must not contain the character NUL")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]
Id = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_without_nul)]
ClientKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_without_nul)]
Mode = Literal["now", "after_step"]
Decision = Literal["approve", "deny"]
Remember = Literal["conversation"]
Reason = Annotated[str, Field(max_length=500), AfterValidator(_without_nul)]
LimitMs = Annotated[int, Field(ge=1, le=MAX_LIMIT_MS)]
