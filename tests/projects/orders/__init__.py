"""An app of the host."""
