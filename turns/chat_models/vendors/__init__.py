"""Vendors: the only code that knows pydantic-ai and the vendors' SDKs; imported when such a model first answers.

`streams` speaks to any of them, `translation` writes our messages as theirs, one module per vendor makes its client.
"""
