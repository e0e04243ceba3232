"""Processes as owners of turns: their rows, leases, wake-ups between them, and tasks of one."""
