"""Processes as owners of turns: their rows, leases, wake-ups and background tasks."""
