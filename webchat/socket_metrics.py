"""Metrics of this process's sockets for Prometheus; importing them registers them (B7)."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from turns.running.metrics import registry
from webchat import open_sockets


class SocketMetrics(Collector):
    """How many sockets are open, and how often a client was too slow."""

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "turnkeeper_sockets", "Open sockets of this process", value=open_sockets.count()
        )
        yield CounterMetricFamily(
            "turnkeeper_outbox_overflows",
            "How often a client read too slowly for what was pushed to it",
            value=open_sockets.overflow_count(),
        )


registry.register(SocketMetrics())
