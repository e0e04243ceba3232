"""System checks of every setting of turns. Each has an id that is never reused, what is wrong, and a hint what to write."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.files.storage import FileSystemStorage, storages

from governance import LoopDetector, setting_rules
from governance import checks as governance_checks
from governance.conf import app_settings as governance_settings
from turns.chat_models.catalog import LOCAL, problem_of, public_name
from turns.conf import app_settings
from turns.queueing.dispatchers import PROCRASTINATE, path_of

_INSTANT = 1.0  # a cancelled turn is over within one second (C1)


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Every setting has the right type and a sensible value."""
    return setting_rules.check_values(app_settings)


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """No setting is misspelled: it would be ignored without a word."""
    return setting_rules.check_names(app_settings, check_id="turns.W001")


def check_apps(**_: Any) -> list[checks.CheckMessage]:
    """The apps below are installed."""
    return setting_rules.check_apps("turns", "governance", check_id="turns.E050")


def check_chat_model(**_: Any) -> list[checks.CheckMessage]:
    """The chat model can be found, and a provider's has its package and its key. None is made, and nobody is asked."""
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


def check_dispatcher(**_: Any) -> list[checks.CheckMessage]:
    """The dispatcher can be found, and Procrastinate has its tables and PostgreSQL."""
    name = app_settings.valid("DISPATCHER")
    if name == PROCRASTINATE:
        return _check_procrastinate()
    return setting_rules.check_path(
        path_of(name),
        what="There is no dispatcher",
        otherwise=app_settings.DECLARED["DISPATCHER"].hint,
        check_id="turns.E023",
    )


def check_database(**_: Any) -> list[checks.CheckMessage]:
    """SQLite begins transactions as a writer: one that begins as a reader fails at once where another one writes."""
    found: list[checks.CheckMessage] = []
    for alias, database in settings.DATABASES.items():
        mode = str(database.get("OPTIONS", {}).get("transaction_mode") or "")
        if _is_sqlite(database) and mode.upper() not in ("IMMEDIATE", "EXCLUSIVE"):
            found.append(
                checks.Error(
                    f"The database {alias!r} is SQLite without transaction_mode IMMEDIATE: turns that write at the same"
                    " time fail with “database is locked”.",
                    hint=f"Set DATABASES[{alias!r}]['OPTIONS']['transaction_mode'] = 'IMMEDIATE'.",
                    id="turns.E026",
                )
            )
    return found


def check_connections(**_: Any) -> list[checks.CheckMessage]:
    """Connections that were lost while they rested are found before somebody gets an error, or waits for seconds."""
    found: list[checks.CheckMessage] = []
    for alias, database in settings.DATABASES.items():
        is_checked = bool(database.get("CONN_HEALTH_CHECKS"))
        is_pooled = bool(database.get("OPTIONS", {}).get("pool"))
        is_kept = is_pooled or database.get("CONN_MAX_AGE", 0) != 0
        if not _is_sqlite(database) and is_kept and is_checked is is_pooled:
            found.append(_lost_connections(alias, is_pooled=is_pooled))
    return found


def _lost_connections(alias: str, *, is_pooled: bool) -> checks.CheckMessage:
    name = f"DATABASES[{alias!r}]['CONN_HEALTH_CHECKS']"
    if is_pooled:
        return checks.Warning(
            f"The pool of the database {alias!r} checks each connection and waits longer after each that was lost: after"
            " a restart of the database, requests wait for up to ten seconds and fail.",
            hint=f"Set {name} = False: what was lost in a pool is found without that.",
            id="turns.W006",
        )
    return checks.Warning(
        f"The database {alias!r} keeps connections without checking them: each one that was lost costs a request an error.",
        hint=f"Set {name} = True, or keep none (CONN_MAX_AGE = 0).",
        id="turns.W007",
    )


def check_loops(**_: Any) -> list[checks.CheckMessage]:
    """The numbers of the loop detector fit each other; a turn could not begin otherwise."""
    if check_values():
        return []
    try:
        LoopDetector(
            window=app_settings.LOOP_WINDOW,
            warn_after=app_settings.LOOP_WARN_AFTER,
            halt_after=app_settings.LOOP_HALT_AFTER,
        )
    except ValueError as error:
        return [
            checks.Error(
                f"The settings TURNS_LOOP_… do not fit each other: {error}",
                hint="Let LOOP_WARN_AFTER be below LOOP_HALT_AFTER, and that within LOOP_WINDOW.",
                id="turns.E020",
            )
        ]
    return []


def check_lease(**_: Any) -> list[checks.CheckMessage]:
    """A lease is renewed in time, and given up well before others take it. No turn ever has two owners (H4)."""
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
    """A cancelled turn is over within a second, and its tools have their grace before that (C1)."""
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
    """The storage of attachments is there, no web server hands it out, and every process that runs turns reaches it."""
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
    """Files lie where nobody gets at them but by this site, which asks who may."""
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
        check_dispatcher,
        check_database,
        check_connections,
        check_loops,
        check_lease,
        check_promise,
        check_attachments,
    ):
        checks.register(check, "turns")


def _check_procrastinate() -> list[checks.CheckMessage]:
    found: list[checks.CheckMessage] = []
    if not apps.is_installed("procrastinate.contrib.django"):
        found.append(
            checks.Error(
                "Turns are dispatched by Procrastinate, whose app is not installed.",
                hint="pip install 'django-turnkeeper[scaled]', and add 'procrastinate.contrib.django' to INSTALLED_APPS.",
                id="turns.E024",
            )
        )
    if _is_sqlite(settings.DATABASES.get("default", {})):
        found.append(
            checks.Error(
                "Turns are dispatched by Procrastinate, which needs PostgreSQL, and the database is SQLite.",
                hint="Use PostgreSQL (DATABASE_URL=postgres://…), or set TURNS_DISPATCHER to 'embedded'.",
                id="turns.E025",
            )
        )
    return found


def _is_sqlite(database: Any) -> bool:
    return str(database.get("ENGINE", "")).endswith("sqlite3")
