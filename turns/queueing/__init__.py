"""The queue of turns: permission to add a turn, scheduling, and notification of processes."""
