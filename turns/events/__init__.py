"""How changes of turns are reported: the event log, its sinks, notifications, and answers to cancel words."""
