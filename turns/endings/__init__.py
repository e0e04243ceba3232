"""The end of a turn for any reason, and its consequences: reports, recovery, deletions."""
