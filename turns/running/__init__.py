"""What runs turns in a process: the runtime, and all that the owner of a turn writes."""
