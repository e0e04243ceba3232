"""Limits of one request to a provider."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """How long to wait: for the first piece of an answer, and between two pieces; seconds."""

    first_byte_timeout: float = 120.0
    idle_timeout: float = 120.0
