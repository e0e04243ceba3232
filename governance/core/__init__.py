"""One tool call from its request to its one outcome; imports no framework (B8)."""
