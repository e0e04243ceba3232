"""How the tables of webchat came to be."""
