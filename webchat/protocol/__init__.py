"""The WebSocket protocol: the frames of both sides, and the generators of documentation and types."""
