"""The viewers of conversations, and the policy for turns without viewers."""
