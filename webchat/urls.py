"""URLs of the pages, the API, the health endpoints and the metrics."""

from django.core.checks import CheckMessage
from django.urls import URLPattern, include, path
from django.urls.resolvers import RoutePattern

from governance import setting_rules
from webchat import views


class FirstPage(URLPattern):
    """The route of the first page.

    Its check reports if the app is not installed, because the app's own checks do not run then.
    """

    def check(self) -> list[CheckMessage]:
        """Return an error if the project includes webchat's URLs without installing webchat."""
        missing = setting_rules.check_apps("webchat.urls", "webchat", check_id="webchat.E023")
        return [*missing, *super().check()]


app_name = "webchat"
urlpatterns = [
    FirstPage(RoutePattern("", is_endpoint=True), views.conversations, name="conversations"),
    path("login/", views.SignInView.as_view(), name="login"),
    path("logout/", views.SignOutView.as_view(), name="logout"),
    path("c/new/", views.new_conversation, name="new_conversation"),
    path("c/new/<uuid:conversation_id>/", views.unbegun_conversation, name="unbegun_conversation"),
    path("c/<uuid:conversation_id>/", views.conversation, name="conversation"),
    path(
        "c/<uuid:conversation_id>/recent/", views.recent_conversations, name="recent_conversations"
    ),
    path("api/", include("webchat.api")),
    path("", include("webchat.health")),
    path("", include("webchat.metrics")),
]
