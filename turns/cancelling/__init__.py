"""Cancels: the commands of clients, the stored requests, and the descendants of a cancelled turn."""
