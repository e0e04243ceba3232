"""Real processes that are made to fail, and the checker that looks at what they leave behind.

Installed as an app by the processes under test, so that the tools in `tools.py` are found.
"""
