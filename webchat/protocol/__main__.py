"""Generates the schemas in the docs and the types of the chat page from the frames."""

import os

import django

from webchat.protocol import generators

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()  # the operations are declared in this module
generators.PAGE.write_text(generators.refresh_docs(generators.PAGE.read_text("utf-8")), "utf-8")
generators.SCRIPT.write_text(generators.script(), "utf-8")
