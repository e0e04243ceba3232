"""Objects inside the frames that the server sends; described like the frames, in `webchat.protocol.server_frames`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Milliseconds = Annotated[int, Field(ge=0)]
Limit = Milliseconds | None


class Part(BaseModel):
    """What every part has: it may get more fields."""

    model_config = ConfigDict(extra="allow", frozen=True, use_attribute_docstrings=True)


class WaitsFor(Part):
    """`call`: until the call `tool_id` has ended; `scope`: its conversation runs as many calls as it may; `slot`: so does the server."""

    kind: Literal["call", "slot", "scope"]
    tool_id: str
    tool_name: str


class EndedBy(Part):
    """Who or what has ended a call or a turn; `by` is a name, empty for the system."""

    reason: str
    source: str
    by: str


class Late(Part):
    """How the work of a call ended that had been given up."""

    kind: str
    after_ms: Limit
