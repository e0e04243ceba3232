"""Creates models that use Anthropic's Messages API."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

from anthropic import AsyncAnthropic
from httpx2 import AsyncClient
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP, AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.tools import RunContext, ToolDefinition

from turns.chat_models.vendors.thoughts import BindsThoughts, KeepsMessagesApart

# The API refuses the whole request if one tool has a property name that does not match this pattern. Its documentation
# does not say so. According to these reports, only the properties at the top level are checked, not nested ones:
# https://github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/709
# https://github.com/decocms/studio/pull/6874
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_IN_WORDS = "The input must follow this JSON Schema, with its property names exactly as they are:"
_NOT_OFFERED = "It was called before and cannot be called now."


def make_model(
    name: str, *, key: str, base_url: str, http_client: AsyncClient, provider: str = ""
) -> Model:
    """Return a pydantic-ai model for this API."""
    client = AsyncAnthropic(api_key=key, base_url=base_url or None, http_client=http_client)
    # Each step of a turn sends the previous history with a few additions, so the provider can read most of it from its cache.
    settings = AnthropicModelSettings(anthropic_cache=True)
    return _Model(name, provider=AnthropicProvider(anthropic_client=client), settings=settings)


class _Model(BindsThoughts, KeepsMessagesApart, AnthropicModel):
    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Send a request. If no tool is offered, offer those of earlier calls without letting the model call them,
        because the API refuses a history with calls but without tools.

        The cache retention is passed as the vendor's own setting, because that overrides pydantic-ai's common one.
        """
        settings = _with_room(_with_cache(model_settings), self.profile)
        parameters = model_request_parameters
        if not parameters.function_tools and (called := _called(messages)):
            settings = merge_model_settings(settings, ModelSettings(tool_choice="none"))
            parameters = replace(parameters, function_tools=called)
        async with super().request_stream(messages, settings, parameters, run_context) as response:
            yield response

    def customize_request_parameters(
        self, model_request_parameters: ModelRequestParameters
    ) -> ModelRequestParameters:
        tools = [_acceptable(tool) for tool in model_request_parameters.function_tools]
        return super().customize_request_parameters(
            replace(model_request_parameters, function_tools=tools)
        )


def _with_cache(settings: ModelSettings | None) -> ModelSettings | None:
    if settings is None or "cache" not in settings:
        return settings
    kept_for = settings["cache"]
    own: bool | Literal["5m", "1h"] = "1h" if kept_for in ("1h", "12h") else "5m"
    if kept_for is False:
        own = False
    return merge_model_settings(settings, AnthropicModelSettings(anthropic_cache=own))


def _with_room(
    settings: ModelSettings | None, profile: AnthropicModelProfile
) -> ModelSettings | None:
    """Lower the effort of models with a thinking budget, because they refuse a budget that is not below `max_tokens`."""
    max_tokens, effort = (settings or {}).get("max_tokens"), (settings or {}).get("thinking")
    if max_tokens is None or not effort or profile.get("anthropic_supports_adaptive_thinking"):
        return settings
    budgets = ANTHROPIC_THINKING_BUDGET_MAP
    levels = [level for level in budgets if budgets[level] <= min(max_tokens - 1, budgets[effort])]
    return merge_model_settings(
        settings, ModelSettings(thinking=max(levels, key=budgets.__getitem__, default=False))
    )


def _called(messages: Sequence[ModelMessage]) -> list[ToolDefinition]:
    responses = (message for message in messages if isinstance(message, ModelResponse))
    calls = (
        part for message in responses for part in message.parts if isinstance(part, ToolCallPart)
    )
    return [
        ToolDefinition(
            name=name, description=_NOT_OFFERED, parameters_json_schema={"type": "object"}
        )
        for name in dict.fromkeys(call.tool_name for call in calls)
    ]


def _acceptable(tool: ToolDefinition) -> ToolDefinition:
    """Return the tool. If the API would refuse a property name, the schema is moved to the description.

    The names are not translated, so that the model reads and writes those that the tool knows.
    """
    schema = tool.parameters_json_schema
    if all(map(_PROPERTY_NAME.fullmatch, schema.get("properties", ()))):
        return tool
    words = f"{tool.description}\n\n{_IN_WORDS}\n{json.dumps(schema, ensure_ascii=False)}"
    return replace(tool, description=words, parameters_json_schema={"type": "object"})
