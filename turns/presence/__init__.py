"""Who watches a conversation, and what happens to its turns when nobody does."""
