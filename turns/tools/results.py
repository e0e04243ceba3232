"""The tool that reads a result that no longer fits into prompts."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from governance import ToolContext, ToolFailed, selectors, tool
from governance.db import run_in_db_thread
from governance.selectors import CallResult
from turns.core.window import parts_of_result_id
from turns.models import Turn

MOST = 10_000  # characters of one part


@tool(title="Read an earlier result")
async def read_result(
    context: ToolContext,
    id: Annotated[
        str, Field(max_length=300, description="The id given in the line that replaced the result.")
    ],
    offset: Annotated[int, Field(ge=0, description="The number of characters to skip.")] = 0,
    limit: Annotated[
        int, Field(ge=1, le=MOST, description="The maximum number of characters to return.")
    ] = 4_000,
) -> str:
    """Read a part of an earlier tool result that was left out of this conversation to save room."""
    result = await _find(context.scope, id)
    if result is None:
        raise ToolFailed("This conversation has no result with this id. It may have been deleted.")
    length = len(result.result)
    part = result.result[offset : offset + limit]
    end = offset + len(part)
    if not part:
        return f"The result has {length:,} characters, so there is nothing at {offset:,}."
    more = f" Continue with offset {end}." if end < length else ""
    return f"[Characters {offset:,} to {end:,} of {length:,}.{more}]\n{part}"


@run_in_db_thread
def _find(scope: str, id: str) -> CallResult | None:
    """Return a result of this conversation, unless an edit has removed its turn from the history."""
    turn_id, call_id = parts_of_result_id(id)
    result = selectors.find_result(scope, group_begins=turn_id, call_id=call_id)
    if result is None:
        return None
    try:
        ids = {"pk": UUID(result.group), "conversation": UUID(scope)}
    except ValueError:  # called without a turn
        return None
    return result if Turn.objects.filter(**ids, replaced_by=None).exists() else None
