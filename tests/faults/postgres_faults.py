"""What goes wrong with PostgreSQL: connections that are cut, and a server that takes no writes."""

from scripts.servers import Postgres


def cut_connections(postgres: Postgres, database: str) -> set[object]:
    """End every connection to a database; return the pids of those who served them."""
    ended = postgres.run(
        "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = %s AND pid <> pg_backend_pid()",
        database,
    )
    return {pid for pid, _ in ended}


def connection_pids(postgres: Postgres, database: str) -> set[object]:
    """Return the pids of those who serve the connections to a database."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
    return {pid for (pid,) in postgres.run(query, database)}


def refuse_writes(postgres: Postgres, *, on: bool = True) -> None:
    """Read only from now on, in every connection, as when there is no room left; or take writes again."""
    postgres.run(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
    postgres.run("SELECT pg_reload_conf()")
