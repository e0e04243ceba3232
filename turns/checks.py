"""System checks of every setting of turns. Each message has a permanent id, the problem, and a hint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.files.storage import FileSystemStorage, storages

from governance import checks as governance_checks
from governance import setting_rules
from governance.conf import app_settings as governance_settings
from governance.db import database_alias
from turns.chat_models.catalog import LOCAL, public_name
from turns.chat_models.providers import PROVIDERS, endpoints, problem_of
from turns.conf import app_settings
from turns.queueing.dispatchers import RUNNERS, path_of
from turns.running.runtime import loop_detector

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_BOUNDS = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "tcp_user_timeout": 15_000,
}  # suggested libpq parameters
_INSTANT = 1.0  # a cancelled turn is over within one second (C1)


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Check that every setting has the right type and a sensible value."""
    return setting_rules.check_values(app_settings)


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """Report unknown settings, because they would have no effect."""
    return setting_rules.check_names(app_settings, check_id="turns.W001")


def check_apps(**_: Any) -> list[checks.CheckMessage]:
    """Check that the app `governance` is installed, on which turns depends."""
    return setting_rules.check_apps("turns", "governance", check_id="turns.E050")


def check_chat_model(**_: Any) -> list[checks.CheckMessage]:
    """Check that the chat model exists and, for a provider's model, that its package and key exist. No model is created
    or contacted.
    """
    name = app_settings.valid("CHAT_MODEL")
    if name == LOCAL:
        return []
    if not public_name(name):
        return setting_rules.check_path(
            name,
            what="There is no chat model",
            otherwise=app_settings.DECLARED["CHAT_MODEL"].hint,
            check_id="turns.E019",
        )
    problem = problem_of(name)
    if problem is None:
        return []
    return [
        checks.Warning(
            f"The chat model {name!r} cannot answer.", hint=str(problem), id="turns.W002"
        )
    ]


def check_endpoints(**_: Any) -> list[checks.CheckMessage]:
    """Check that no endpoint has the name of a provider, and that each has a known API."""
    declared = app_settings.valid("CHAT_MODEL_ENDPOINTS")
    return [
        checks.Error(
            f"TURNS_CHAT_MODEL_ENDPOINTS: {name!r} is the name of a provider, or its api is none.",
            hint=f"Choose another name than these, and one of them as api: {', '.join(PROVIDERS)}.",
            id="turns.E068",
        )
        for name in declared
        if name not in endpoints()
    ]


def check_dispatcher(**_: Any) -> list[checks.CheckMessage]:
    """Check that the dispatcher exists, and that runners have PostgreSQL."""
    name = app_settings.valid("DISPATCHER")
    if path_of(name) == path_of(RUNNERS):
        return _check_postgresql()
    return setting_rules.check_path(
        path_of(name),
        what="There is no dispatcher",
        otherwise=app_settings.DECLARED["DISPATCHER"].hint,
        check_id="turns.E023",
    )


def check_database(**_: Any) -> list[checks.CheckMessage]:
    """Check that SQLite transactions acquire the write lock at the start, because a transaction that acquires it later
    fails immediately if another process is writing.
    """
    if check_apps():  # the database alias is only known with governance
        return []
    alias = database_alias()
    database = settings.DATABASES[alias]
    mode = str(database.get("OPTIONS", {}).get("transaction_mode") or "")
    if not _is_sqlite(database) or mode.upper() in ("IMMEDIATE", "EXCLUSIVE"):
        return []
    return [
        checks.Error(
            f"The database {alias!r} is SQLite without transaction_mode IMMEDIATE: turns that write at the same"
            " time fail with “database is locked”.",
            hint=f"Set DATABASES[{alias!r}]['OPTIONS']['transaction_mode'] = 'IMMEDIATE'.",
            id="turns.E026",
        )
    ]


def check_connections(**_: Any) -> list[checks.CheckMessage]:
    """Check that lost idle connections are replaced before a request fails or waits for seconds."""
    if check_apps():  # the database alias is only known with governance
        return []
    alias = database_alias()
    database = settings.DATABASES[alias]
    is_checked = bool(database.get("CONN_HEALTH_CHECKS"))
    is_pooled = bool(database.get("OPTIONS", {}).get("pool"))
    is_kept = is_pooled or database.get("CONN_MAX_AGE", 0) != 0
    if not _is_sqlite(database) and is_kept and is_checked is is_pooled:
        return [_lost_connections(alias, is_pooled=is_pooled)]
    return []


def _lost_connections(alias: str, *, is_pooled: bool) -> checks.CheckMessage:
    name = f"DATABASES[{alias!r}]['CONN_HEALTH_CHECKS']"
    if is_pooled:
        return checks.Warning(
            f"The pool of the database {alias!r} checks each connection and waits longer after each that was lost: after"
            " a restart of the database, requests wait for up to ten seconds and fail.",
            hint=f"Set {name} = False: a pool detects lost connections without it.",
            id="turns.W006",
        )
    return checks.Warning(
        f"The database {alias!r} keeps connections without checking them: each one that was lost costs a request an error.",
        hint=f"Set {name} = True, or keep none (CONN_MAX_AGE = 0).",
        id="turns.W007",
    )


def check_silence(**_: Any) -> list[checks.CheckMessage]:
    """Check that a database server that vanishes silently is detected earlier than with the kernel's defaults."""
    if check_apps():  # the database alias is only known with governance
        return []
    alias = database_alias()
    database = settings.DATABASES[alias]
    options = database.get("OPTIONS", {})
    host = str(options.get("host") or database.get("HOST") or "")
    is_near = not host or host in _THIS_MACHINE or host.startswith(("/", "@"))
    missing = [name for name in _BOUNDS if name not in options]
    if is_near or not missing or not str(database["ENGINE"]).endswith("postgresql"):
        return []
    return [
        checks.Warning(
            f"The database {alias!r} is on another machine. If that machine disappears without closing its"
            " connections, statements wait for a quarter of an hour or longer.",
            hint=f"Set {', '.join(missing)} in DATABASES[{alias!r}]['OPTIONS'], such as"
            f" {', '.join(f'{name!r}: {_BOUNDS[name]}' for name in missing)}.",
            id="turns.W009",
        )
    ]


def check_loops(**_: Any) -> list[checks.CheckMessage]:
    """Check that the loop detector's numbers are consistent; otherwise no turn could start."""
    if check_values():
        return []
    try:
        loop_detector()
    except ValueError as error:
        return [
            checks.Error(
                f"The settings TURNS_LOOP_… do not fit each other: {error}",
                hint="Let LOOP_WARN_AFTER be below LOOP_HALT_AFTER.",
                id="turns.E020",
            )
        ]
    return []


def check_lease(**_: Any) -> list[checks.CheckMessage]:
    """Check that a lease is renewed in time, and ends well before others take its turns, so that a turn never has two
    owners (H4).
    """
    if check_values():
        return []
    renew, ttl = app_settings.LEASE_RENEW_INTERVAL, app_settings.LEASE_TTL
    fence_after = app_settings.LEASE_FENCE_AFTER
    if renew * 2 <= fence_after and fence_after * 1.2 <= ttl:
        return []
    return [
        checks.Error(
            f"The settings TURNS_LEASE_… do not fit each other: a lease is renewed every {renew:g} s, given up after"
            f" {fence_after:g} s, and taken by others after {ttl:g} s.",
            hint="Let LEASE_RENEW_INTERVAL be at most half of LEASE_FENCE_AFTER, and that at most five sixths of"
            " LEASE_TTL.",
            id="turns.E040",
        )
    ]


def check_promise(**_: Any) -> list[checks.CheckMessage]:
    """Check that a cancelled turn ends within a second, including the grace period of its tools (C1)."""
    if check_values() or governance_checks.check_values():
        return []
    return [*_check_bound(app_settings.CANCEL_BOUND), *_check_poll()]


def _check_bound(bound: float) -> Iterator[checks.CheckMessage]:
    if bound >= _INSTANT:
        yield checks.Warning(
            f"TURNS_CANCEL_BOUND is {bound:g} s: a cancelled turn may take longer than a second to end.",
            hint="Set it below 1 second.",
            id="turns.W003",
        )
    if bound <= governance_settings.CANCEL_GRACE:
        yield checks.Warning(
            f"TURNS_CANCEL_BOUND is {bound:g} s, not more than GOVERNANCE_CANCEL_GRACE: turns end before their"
            " tools had the time that they were given, and real results are lost.",
            hint="Set it above GOVERNANCE_CANCEL_GRACE.",
            id="turns.W004",
        )


def _check_poll() -> Iterator[checks.CheckMessage]:
    if app_settings.POLL_INTERVAL > _INSTANT:
        yield checks.Warning(
            "TURNS_POLL_INTERVAL is above 1 second: a cancel whose message was lost is obeyed that late.",
            hint="Set it to 1 second or less.",
            id="turns.W005",
        )


def check_attachments(**_: Any) -> list[checks.CheckMessage]:
    """Check that the storage of attachments exists, is not public, and can be reached by every process that runs
    turns.
    """
    alias = app_settings.valid("ATTACHMENT_STORAGE")
    if not alias:
        return []
    if alias not in settings.STORAGES:
        return [
            checks.Error(
                f"TURNS_ATTACHMENT_STORAGE is {alias!r}, and STORAGES has no such entry.",
                hint=f"Add STORAGES[{alias!r}], or leave the setting empty: then nothing can be attached.",
                id="turns.E061",
            )
        ]
    storage = storages[alias]
    if not isinstance(storage, FileSystemStorage):
        return []
    return [*_check_location(alias, Path(storage.location)), *_check_hosts(alias)]


def _check_location(alias: str, location: Path) -> list[checks.CheckMessage]:
    """Check that files are accessible only through this site, which checks permissions."""
    for name in ("MEDIA_ROOT", "STATIC_ROOT"):
        root = getattr(settings, name, None)
        if root and location.resolve().is_relative_to(Path(root).resolve()):
            return [
                checks.Error(
                    f"Attachments lie in {location}, inside {name}: a web server hands them out to anybody.",
                    hint=f"Give STORAGES[{alias!r}] a location elsewhere.",
                    id="turns.E062",
                )
            ]
    return []


def _check_hosts(alias: str) -> list[checks.CheckMessage]:
    if app_settings.valid("DISPATCHER") == "embedded":
        return []
    return [
        checks.Warning(
            "Attachments lie in a directory of this machine, and turns run in other processes: on another machine an"
            " agent does not find the files.",
            hint=f"Let STORAGES[{alias!r}] be a storage that all machines reach. If they share the directory, or all"
            " processes are on one machine: SILENCED_SYSTEM_CHECKS = ['turns.W008'].",
            id="turns.W008",
        )
    ]


def register_all() -> None:
    for check in (
        check_values,
        check_names,
        check_apps,
        check_chat_model,
        check_endpoints,
        check_dispatcher,
        check_database,
        check_connections,
        check_silence,
        check_loops,
        check_lease,
        check_promise,
        check_attachments,
    ):
        checks.register(check, "turns")


def _check_postgresql() -> list[checks.CheckMessage]:
    if check_apps() or not _is_sqlite(settings.DATABASES[database_alias()]):
        return []
    return [
        checks.Error(
            "Turns run in runners, which PostgreSQL notifies, and the database is SQLite.",
            hint=f"Let DATABASES[{database_alias()!r}] be PostgreSQL, or set TURNS_DISPATCHER to 'embedded'.",
            id="turns.E025",
        )
    ]


def _is_sqlite(database: Any) -> bool:
    return str(database.get("ENGINE", "")).endswith("sqlite3")
