"""The site that ships as the default: its settings, its addresses and its ASGI application."""
