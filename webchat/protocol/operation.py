"""The base class of client operations. One class defines the frame, the API endpoint, the handler and the response.

The classes are in `webchat.operations`. The frame parser, the API, the documentation of the protocol and the types of
the chat page are derived from them.
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

OPERATIONS: dict[str, type["Operation"]] = {}  # keyed by frame type
_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The user, source and target of an operation. Ids that the operation does not need match no row.

    For a message, the user may be a function that returns the user.
    """

    user: Any
    source: Any
    conversation_id: UUID = _NO_ID
    turn_id: UUID = _NO_ID
    tool_id: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of an operation: its outcome on the wire, and the body of the API's response if it was accepted."""

    outcome: str
    answer: Mapping[str, Any]


class Operation(BaseModel):
    """An operation that clients request with a frame or with a POST request. Its `op_id` makes it idempotent.

    The ids in `path` are fields of the frame, except for the conversation's id, which is the socket's. The first item
    of `answers` is the response to an accepted operation.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: ClassVar[str]
    path: ClassVar[str]
    answers: ClassVar[dict[int, Any]]
    is_cancel: ClassVar[bool] = False  # a user's limit for frames never refuses a cancel

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
        """Call the service that performs the operation, and return the result. May raise a `TurnsError`."""


@cache
def frame_of(operation: type[Operation]) -> type[Operation]:
    """Return the frame class of an operation.

    It adds the `type`, a required `op_id` and the ids in the operation's path.
    """
    name: Any = Literal[operation.name]
    fields: dict[str, Any] = {"type": (name, ...), "op_id": (ClientKey, ...)}
    fields |= dict.fromkeys(operation.frame_ids(), (Id, ...))
    return create_model(operation.__name__, __base__=operation, __doc__=operation.__doc__, **fields)
