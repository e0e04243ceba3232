"""Shared code for reading and writing rows: access, operations, the order of locks, retries, retention."""
