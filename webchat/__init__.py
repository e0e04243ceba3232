"""The HTTP API, the WebSocket and the chat page: the only app that uses Channels and renders the chat."""

from turns import __version__

__all__ = ["__version__"]
