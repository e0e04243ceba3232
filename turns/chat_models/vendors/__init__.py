"""Vendors: the only code that uses pydantic-ai and the vendors' SDKs; imported when such a model is first needed.

`streams` sends requests to any of them, `translation` converts messages, and one module per vendor creates its model.
"""
