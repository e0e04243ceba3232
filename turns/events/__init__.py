"""What is told of turns: the numbered log, the sinks, notifications after a change, answers to cancel words."""
