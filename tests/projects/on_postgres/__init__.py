"""A host on PostgreSQL whose requests are transactions, with tests of its own as Django's runner runs them."""
