"""The steps behind the Makefile."""
