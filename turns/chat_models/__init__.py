"""Chat models: the built-in one, and those of providers."""
