"""The WebSocket protocol: the frames of both sides, and what is generated from them."""
