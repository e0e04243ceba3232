"""The site's settings as the tests use them: nothing of the developer's environment, nothing kept."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_SCRATCH = Path(tempfile.gettempdir()) / f"turnkeeper-tests-{os.getpid()}"


@atexit.register
def _keep_nothing() -> None:
    if not _SCRATCH.name.endswith(f"-{os.getpid()}"):
        return  # a fork of the process that these files belong to
    shutil.rmtree(_SCRATCH, ignore_errors=True)
    for file in _SCRATCH.parent.glob(f"{_SCRATCH.name}.sqlite3*"):
        file.unlink()


# Before the site's settings are read, since they look at the environment.
for _name in (
    "AGENT_MODEL",
    "AGENT_TOOL_TIMEOUT",
    "ALLOWED_HOSTS",
    "BEHIND_PROXY",
    "CSRF_TRUSTED_ORIGINS",
    "DEBUG",
    "HOST",
    "LOG_LEVEL",
    "PORT",
    "REDIS_URL",
    "SIGN_IN_ATTEMPTS",
    "SIGN_IN_PAUSE_MINUTES",
    "SILENCED_SYSTEM_CHECKS",
    "STATIC_ROOT",
):
    os.environ.pop(_name, None)
for _name in list(os.environ):
    if _name.startswith(("GOVERNANCE_", "TURNS_", "WEBCHAT_")):
        del os.environ[_name]
os.environ["ENV_FILE"] = os.devnull
os.environ["SECRET_KEY"] = "the-tests-keep-no-secrets-" + "x" * 40
os.environ["VAR_DIR"] = str(_SCRATCH)
os.environ["HTTPS"] = "false"
os.environ["DATABASE_URL"] = os.environ.get("TEST_DATABASE_URL", f"sqlite:///{_SCRATCH}.sqlite3")

from config.settings import *  # noqa: E402, F403
from config.settings import ALLOWED_HOSTS, DATABASES  # noqa: E402

ALLOWED_HOSTS.append("testserver")
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # A file and not memory: connections of several threads to one database in memory do not wait for each other.
    DATABASES["default"]["TEST"] = {"NAME": f"{_SCRATCH}.sqlite3"}
    # No test outlives a power cut: nobody waits for the disk at each commit.
    DATABASES["default"]["OPTIONS"]["init_command"] = (
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"
    )
WHITENOISE_AUTOREFRESH = True  # each test client would read the whole directory of static files
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
GOVERNANCE_EXEC_ENABLED = True
GOVERNANCE_EXEC_SANDBOX = (
    "none"  # so that a machine with bubblewrap tests the same; the sandbox has tests of its own
)
GOVERNANCE_APPROVAL = {"*": "never"}  # but where a test is about it
SILENCED_SYSTEM_CHECKS = ["governance.W007"]
