"""Prometheus metrics of this process's sockets and channel layer.

They are registered when this module is imported (B7).
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turns.running.metrics import registry
from webchat import open_sockets
from webchat.broadcast import layer_state


class SocketMetrics(Collector):
    """Collects the number of open sockets, the number of slow clients, and the state of the channel layer."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "turnkeeper_sockets", "Open sockets of this process", value=open_sockets.count()
        )
        yield CounterMetricFamily(
            "turnkeeper_outbox_overflows",
            "How often a client read too slowly for what was pushed to it",
            value=open_sockets.overflow_count(),
        )
        yield GaugeMetricFamily(
            "turnkeeper_channel_layer_up",
            "Whether the channel layer takes messages of this process",
            value=not layer_state.is_away,
        )


registry.register(SocketMetrics())
