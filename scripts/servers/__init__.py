"""PostgreSQL and Redis from what is installed: to try several processes out, to measure, and to be broken."""

from scripts.servers.postgres import Postgres, find_postgres
from scripts.servers.redis import Redis, find_redis
from scripts.servers.server import NotInstalled, Server, ends_with_us, free_port
from scripts.servers.temporary import are_installed, passing

__all__ = [
    "NotInstalled",
    "Postgres",
    "Redis",
    "Server",
    "are_installed",
    "ends_with_us",
    "find_postgres",
    "find_redis",
    "free_port",
    "passing",
]
