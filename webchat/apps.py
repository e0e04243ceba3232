"""The Django application of webchat."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WebchatConfig(AppConfig):
    """Registers the checks, and the sink through which events reach the sockets."""

    name = "webchat"
    verbose_name = _("Web chat")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what needs the app registry."""
        from django.contrib.auth.signals import user_logged_out

        from turns import sinks
        from webchat import checks
        from webchat.broadcast import ChannelLayerSink, tell_signed_out

        checks.register_all()
        sinks.register(ChannelLayerSink())
        user_logged_out.connect(tell_signed_out, dispatch_uid="webchat.tell_signed_out")
