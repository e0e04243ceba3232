"""An operation of a client: one class for its frame, its endpoint in the API, its handler, its answer.

The classes are in `webchat.operations`. The parser of frames, the API, the protocol's page and the types of the chat page
follow from them.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, create_model

from webchat.protocol.fields import ClientKey, Id

OPERATIONS: dict[str, type["Operation"]] = {}  # by the types of their frames
_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """Who asks, and from where; an id that the operation does not need is one that nothing has.

    The user of a message may be a function that finds out who it is.
    """

    user: Any
    source: Any
    conversation_id: UUID = _NO_ID
    turn_id: UUID = _NO_ID
    tool_id: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of an operation: its outcome on the wire, and the API's answer to one that was accepted."""

    outcome: str
    answer: Mapping[str, Any]


class Operation(BaseModel):
    """The fields of a frame, and of the body of a request: `op_id` makes a repeated operation the same one.

    The ids in `path` are fields of the frame; the conversation is the socket's own. The first of `answers` is the one to an
    operation that was accepted.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: ClassVar[str]
    path: ClassVar[str]
    answers: ClassVar[dict[int, Any]]
    is_cancel: ClassVar[bool] = False  # a cancel is never refused for the number of frames

    op_id: ClientKey | None = None

    @classmethod
    def __pydantic_init_subclass__(cls, **_kwargs: Any) -> None:
        if "name" in cls.__dict__:
            OPERATIONS[cls.name] = cls

    @classmethod
    def path_ids(cls) -> list[str]:
        return re.findall(r"{(\w+)}", cls.path)

    @classmethod
    def frame_ids(cls) -> list[str]:
        return [name for name in cls.path_ids() if name != "conversation_id"]

    @abstractmethod
    async def perform(self, requester: Requester) -> Result:
        """Call the service. Raise `TurnsError`."""


@cache
def frame_of(operation: type[Operation]) -> type[Operation]:
    """Return the frame of an operation: its fields, its type, the ids that the path has, and its own id."""
    name: Any = Literal[operation.name]
    fields: dict[str, Any] = {"type": (name, ...), "op_id": (ClientKey, ...)}
    fields |= dict.fromkeys(operation.frame_ids(), (Id, ...))
    return create_model(operation.__name__, __base__=operation, __doc__=operation.__doc__, **fields)
