"""One turn from its claim to its ending, and a history that stays valid; imports no framework."""
