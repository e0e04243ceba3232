"""Servers of the tests' own that speak the providers' streams byte for byte, on loopback."""

from tests.turns.chat_models.servers.http import (
    Break,
    Hold,
    Request,
    Response,
    Server,
    refusal,
    sse,
)

__all__ = ["Break", "Hold", "Request", "Response", "Server", "refusal", "sse"]
