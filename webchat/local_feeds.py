"""The feeds of this process's sockets, by conversation: what happens here reaches them without the channel layer."""

from typing import Any
from uuid import UUID

from webchat.feed import Feed, Published


class LocalFeeds:
    """A sink of the turns. An event is passed on as one object, so that it is encoded once for all sockets."""

    def __init__(self) -> None:
        self._feeds: dict[UUID, set[Feed]] = {}

    def add(self, feed: Feed) -> None:
        """Let a feed get the events of its conversation."""
        self._feeds.setdefault(feed.conversation_id, set()).add(feed)

    def remove(self, feed: Feed) -> None:
        """Let it get no more."""
        if feeds := self._feeds.get(feed.conversation_id):
            feeds.discard(feed)
            if not feeds:
                del self._feeds[feed.conversation_id]

    async def publish(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        self.push(conversation_id, event)

    def push(self, conversation_id: UUID, event: dict[str, Any]) -> None:
        """Pass an event or a piece of text on; from the event loop of any thread."""
        if feeds := self._feeds.get(conversation_id):
            published = Published(event)
            for feed in tuple(feeds):
                feed.take(published)


local_feeds = LocalFeeds()
