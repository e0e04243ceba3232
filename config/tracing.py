"""Sends the site's traces to the endpoint in OpenTelemetry's environment variables."""

import os

from django.core.exceptions import ImproperlyConfigured

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def begin() -> None:
    """Send the spans of this process to the endpoint in the environment, if there is one.

    Raises:
        ImproperlyConfigured: the packages of the `otel` extra are not installed.
    """
    variables = [name for name in _ENDPOINTS if os.environ.get(name)]
    if not variables:
        return
    try:
        # Imported here, so that the site starts quickly and also works without these packages.
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{variables[0]} is set, but the packages for traces are not installed: make base EXTRAS=otel"
        ) from error
    os.environ.setdefault("OTEL_SERVICE_NAME", "turnkeeper")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
