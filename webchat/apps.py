"""The Django application of webchat."""

from importlib import import_module
from importlib.util import find_spec

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WebchatConfig(AppConfig):
    """Registers the system checks, the sinks that send events to sockets, and wake-ups through the channel layer."""

    name = "webchat"
    verbose_name = _("Web chat")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from turns.events import sinks
        from turns.processes import wakeups
        from turns.running import draining
        from turns.signals import user_forgotten
        from webchat import api_tokens, broadcast, checks, open_sockets, revocations
        from webchat import operations as _declared  # noqa: F401 - its classes register themselves
        from webchat.feed import local_feeds
        from webchat.log_poller import log_poller

        checks.register_all()
        broadcast.watch_log()
        draining.at_the_end(open_sockets.close_all)
        sinks.register(
            local_feeds
        )  # registered first, so that sockets of this process do not wait for the channel layer
        sinks.register(broadcast.ChannelLayerSink())
        sinks.register(log_poller)
        wakeups.register(broadcast.ChannelLayerWakeups())
        revocations.connect()
        user_forgotten.connect(api_tokens.forget_user, dispatch_uid="webchat")
        if find_spec("prometheus_client") is not None:  # an optional dependency
            import_module("webchat.socket_metrics")
