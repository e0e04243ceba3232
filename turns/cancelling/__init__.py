"""Cancels: the commands of clients, the rows, and what they reach below a turn."""
