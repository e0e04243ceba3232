"""The framework-independent core: runs one turn from its claim to its ending, and keeps histories valid."""
