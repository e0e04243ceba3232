"""Write what is generated from the frames: the schemas in the docs, and the types of the chat page."""

from webchat.protocol import javascript_types, schema_docs

schema_docs.PAGE.write_text(schema_docs.refresh(schema_docs.PAGE.read_text("utf-8")), "utf-8")
javascript_types.SCRIPT.write_text(javascript_types.render(), "utf-8")
