"""A host project that takes all three apps, beside pages of its own, and mounts the chat below a prefix."""
