"""The fixtures of the tests of the console: its own, and those of governance and of turns."""

from tests.console.planted import admin_client, admin_user, planted, said_things
from tests.governance.conftest import make_call, overtake, plain, policy, probe
from tests.turns.conftest import (
    ada,
    chat,
    eve,
    fake_tools,
    operator,
    sink,
    site,
    without_workspace,
)

__all__ = [
    "ada", "admin_client", "admin_user", "chat", "eve", "fake_tools", "make_call", "operator", "overtake", "plain",
    "planted", "policy", "probe", "said_things", "sink", "site", "without_workspace",
]  # fmt: skip
