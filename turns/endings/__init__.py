"""How a turn ends, whoever ends it, and what follows from that."""
