"""Types of the fields that clients send in frames and in requests to the API."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

MAX_LIMIT_MS = 31_536_000_000  # a year, which fits into a BIGINT column of every database


def _without_nul(text: str) -> str:
    if "\x00" in text:  # PostgreSQL cannot store it
        raise PydanticCustomError("nul_character", "must not contain the character NUL")
    return text


def _or_empty(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    try:
        return check(value)
    except ValidationError:
        return ""


Text = Annotated[str, AfterValidator(_without_nul)]
Id = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_without_nul)]
ClientKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_without_nul)]
AttachmentIds = Annotated[list[Id], Field(max_length=100)]
Mode = Literal["now", "after_step", "queued"]
Decision = Literal["approve", "deny"]
Action = Literal["accept", "decline", "cancel"]
Answers = Annotated[
    dict[Annotated[str, Field(max_length=200)], Text | bool | int | float | list[Text] | None],
    Field(max_length=50),
]
QuestionId = Annotated[str, Field(max_length=20, pattern=r"^[0-9]*$")]
Remember = Literal["conversation"]
Reason = Annotated[str, Field(max_length=500), AfterValidator(_without_nul)]
CancelNote = Annotated[Reason, WrapValidator(_or_empty)]
"""The reason for a cancel. An invalid value becomes an empty string, so that no cancel is refused because of it."""
LimitMs = Annotated[int, Field(ge=1, le=MAX_LIMIT_MS)]
