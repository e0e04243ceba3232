"""A host below a prefix, with requests in transactions, pages for the signed-in alone, and hashed static files alone."""
