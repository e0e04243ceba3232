"""The only code that uses pydantic-ai and the vendors' SDKs. It is imported when a model of a vendor is first needed.

`streams` sends requests to any of them, `translation` converts messages, and one module per vendor creates its model.
"""
