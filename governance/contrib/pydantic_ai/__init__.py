"""Governance for the agents of pydantic-ai (B8); needs the `pydantic-ai` extra.

pydantic-ai still describes the tools to the model and validates the arguments.
"""

try:
    import pydantic_ai  # noqa: F401 - only to say what is missing
except ImportError as missing:
    raise ImportError(
        "governance.contrib.pydantic_ai needs pydantic-ai: install django-turnkeeper[pydantic-ai]."
    ) from missing

from governance.contrib.execution import tool_context
from governance.contrib.pydantic_ai.capability import Governance, GovernedToolset, conversation_of

__all__ = ["Governance", "GovernedToolset", "conversation_of", "tool_context"]
