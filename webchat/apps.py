"""The Django application of webchat."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WebchatConfig(AppConfig):
    """Registers the checks, the sinks that feed the sockets, and the wake-ups through the channel layer."""

    name = "webchat"
    verbose_name = _("Web chat")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from turns.events import sinks
        from turns.processes import wakeups
        from turns.running import draining
        from webchat import checks, health, open_sockets, project_checks, revocations
        from webchat import operations as _declared  # noqa: F401 - its classes register themselves
        from webchat.broadcast import ChannelLayerSink
        from webchat.local_feeds import local_feeds
        from webchat.log_poller import log_poller
        from webchat.wakeups import ChannelLayerWakeups

        checks.register_all()
        project_checks.register_all()
        health.register_checks()
        draining.at_the_end(open_sockets.close_all)
        sinks.register(local_feeds)  # first: nobody here waits for a layer
        sinks.register(ChannelLayerSink())
        sinks.register(log_poller)
        wakeups.register(ChannelLayerWakeups())
        revocations.connect()
