"""Runs a command with a temporary PostgreSQL server, whose URL it finds in TEST_DATABASE_URL."""

import os
import subprocess
import sys
from functools import partial

from scripts.servers import Postgres, passing

if __name__ == "__main__":
    with passing(partial(Postgres, is_durable=False)) as server:
        process = subprocess.run(
            sys.argv[1:], env={**os.environ, "TEST_DATABASE_URL": server.url}, check=False
        )
    sys.exit(process.returncode)
