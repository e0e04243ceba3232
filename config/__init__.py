"""The default site: its settings, URLs and ASGI application."""
