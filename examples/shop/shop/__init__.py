"""A flower shop: products, orders, and the tools with which an agent works for its customers and clerks."""
