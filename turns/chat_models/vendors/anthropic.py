"""Anthropic's Messages API."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from anthropic import AsyncAnthropic
from httpx2 import AsyncClient
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.tools import RunContext, ToolDefinition

# One tool with another name of a property makes it refuse the whole request. Its documentation does not say so. Those who
# met it found that the properties at the top count, and nested ones do not:
# https://github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/709
# https://github.com/decocms/studio/pull/6874
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_IN_WORDS = "The input must follow this JSON Schema, with its property names exactly as they are:"
_NOT_OFFERED = "It was called before and cannot be called now."


def make_model(name: str, *, key: str, base_url: str, http_client: AsyncClient) -> Model:
    """Return the model; its SDK never repeats a request by itself."""
    client = AsyncAnthropic(
        api_key=key, base_url=base_url or None, http_client=http_client, max_retries=0
    )
    # Every step of a turn sends the same history and some more. What was sent before is read from the cache.
    settings = AnthropicModelSettings(anthropic_cache=True)
    return _Model(name, provider=AnthropicProvider(anthropic_client=client), settings=settings)


class _Model(AnthropicModel):
    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Name the tools of earlier calls where no tool is offered: the API refuses a history with calls without any."""
        settings, parameters = model_settings, model_request_parameters
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
    """Return the tool; its description holds its schema if the API would refuse a name in it.

    So no name is mapped there and back: the model reads and writes those that the tool knows.
    """
    schema = tool.parameters_json_schema
    if all(map(_PROPERTY_NAME.fullmatch, schema.get("properties", ()))):
        return tool
    words = f"{tool.description}\n\n{_IN_WORDS}\n{json.dumps(schema, ensure_ascii=False)}"
    return replace(tool, description=words, parameters_json_schema={"type": "object"})
