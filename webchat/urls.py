"""Where the pages, the API and the health endpoints are."""

from django.urls import include, path

from webchat import views

app_name = "webchat"
urlpatterns = [
    path("", views.conversations, name="conversations"),
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
