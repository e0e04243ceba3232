"""Files as clients see them: what people attach, and images that calls show."""

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from turns.core.wire.fields import Characters, OneOf


class AttachmentContent(TypedDict):
    """A file that a person has attached, or an image that a call has shown: `tool_use_id`.

    An image has its size in pixels.
    """

    type: Annotated[str, OneOf("image", "document")]
    attachment_id: str
    name: str
    media_type: str
    size: Characters
    width: NotRequired[int]
    height: NotRequired[int]
    tool_use_id: NotRequired[str]
