"""A host that keeps its users and the chat in a database of their own, and orders in the default one."""
