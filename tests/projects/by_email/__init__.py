"""A host project whose users sign in with an e-mail address, and are no part of its admin."""
