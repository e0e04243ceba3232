"""The agents that answer in conversations: lookup, edits, and the tools offered to each."""
