"""Generates the schemas in the documentation and the types of the chat page from the frames."""

import os

import django

from webchat.protocol import generators

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()  # this imports the module that declares the operations
generators.PAGE.write_text(generators.refresh_docs(generators.PAGE.read_text("utf-8")), "utf-8")
generators.SCRIPT.write_text(generators.script(), "utf-8")
