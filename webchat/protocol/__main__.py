"""Write what is generated from the frames: the schemas in the docs, and the types of the chat page."""

import os

import django

from webchat.protocol import javascript_types, schema_docs

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()  # the operations are declared beside the services that they call
schema_docs.PAGE.write_text(schema_docs.refresh(schema_docs.PAGE.read_text("utf-8")), "utf-8")
javascript_types.SCRIPT.write_text(javascript_types.render(), "utf-8")
