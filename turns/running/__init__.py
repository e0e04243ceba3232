"""The runtime of a process, which runs its turns and writes their rows."""
