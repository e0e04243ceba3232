"""The HTTP API, the WebSocket and the chat page: the only app that knows Channels and HTML."""

__version__ = "0.1.0"
