"""A host project that takes governance only: its own code runs tools, administrators set their limits."""
