"""System checks of every setting of turns: an id that is never reused, what is wrong, and a hint what to write instead."""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks

from governance import LoopDetector, is_cancel_phrase, setting_rules
from governance import checks as governance_checks
from governance.conf import app_settings as governance_settings
from governance.setting_rules import WEEK, Rule, seconds, whole
from turns.chat_models import LOCAL, problem_of, public_name
from turns.conf import app_settings
from turns.dispatch import PROCRASTINATE, path_of

_INSTANT = 1.0  # a cancelled turn is over within one second (C1)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_url_or_empty(value: Any) -> bool:
    return isinstance(value, str) and (not value or value.startswith(("http://", "https://")))


def _are_cancel_words(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(is_cancel_phrase, value))


RULES: dict[str, Rule] = {
    "CHAT_MODEL": Rule(
        id="turns.E001",
        is_valid=_is_name,
        hint='Set it to "local", to a provider\'s model such as "openai:gpt-5", or to "package.module:factory".',
    ),
    "MAX_TOOLS": whole("turns.E044", 1, 100_000),
    "MAX_TOOL_TOKENS": whole("turns.E045", 1, 100_000_000),
    "INSTRUCTIONS": Rule(id="turns.E002", is_valid=_is_text, hint="Set it to a text."),
    "TURN_TIMEOUT": seconds("turns.E003", 0, WEEK, none="no limit, as 0 does"),
    "STEP_LIMIT": whole("turns.E004", 1, 100_000),
    "MAX_QUEUED": whole("turns.E005", 1, 10_000),
    "MAX_MESSAGE_LENGTH": whole("turns.E006", 1, 100_000_000),
    "POLL_INTERVAL": seconds("turns.E007", 0.01, 3_600),
    "CANCEL_BOUND": seconds("turns.E008", 0.01, 60),
    "DRAIN_GRACE": seconds("turns.E009", 0, 3_600),
    "LOOP_WINDOW": whole("turns.E010", 1, 10_000),
    "LOOP_WARN_AFTER": whole("turns.E011", 2, 10_000, none="no loop detector"),
    "LOOP_HALT_AFTER": whole("turns.E012", 3, 10_000, none="never"),
    "SNAPSHOT_MESSAGES": whole("turns.E013", 1, 10_000),
    "CHAT_MODEL_BASE_URL": Rule(
        id="turns.E014",
        is_valid=_is_url_or_empty,
        hint="Set it to the address of a server, with https:// or http://, or to an empty string.",
    ),
    "CHAT_MODEL_FIRST_BYTE_TIMEOUT": seconds("turns.E015", 0.1, WEEK),
    "CHAT_MODEL_IDLE_TIMEOUT": seconds("turns.E016", 0.1, WEEK),
    "CHAT_MODEL_RETRIES": whole("turns.E017", 0, 100),
    "CHAT_MODEL_RETRY_MAX_WAIT": seconds("turns.E018", 0, WEEK),
    "DISPATCHER": Rule(
        id="turns.E021",
        is_valid=_is_name,
        hint='Set it to "embedded", to "procrastinate", or to "package.module.Class".',
    ),
    "MAX_LIVE": whole("turns.E022", 1, 10_000),
    "SWEEP_INTERVAL": seconds("turns.E030", 0.01, 3_600),
    "LEASE_RENEW_INTERVAL": seconds("turns.E031", 0.01, 3_600),
    "LEASE_FENCE_AFTER": seconds("turns.E032", 0.01, 3_600),
    "PARK_AFTER": whole("turns.E041", 1, 50, none="never"),
    "PARK_WINDOW": seconds("turns.E042", 1, WEEK),
    "LEASE_TTL": seconds("turns.E033", 0.01, 3_600),
    "MAX_DEPTH": whole("turns.E034", 0, 100),
    "MAX_CHILDREN": whole("turns.E035", 1, 10_000),
    "MAX_FAMILY": whole("turns.E037", 1, 10_000),
    "MAX_FAMILY_TOTAL": whole("turns.E038", 1, 100_000),
    "MAX_MESSAGES_PER_MINUTE": whole("turns.E039", 1, 100_000),
    "REPORT_GRACE": seconds("turns.E036", 0, 3_600),
    "CANCEL_WORDS": Rule(
        id="turns.E043",
        is_valid=_are_cancel_words,
        hint='Set it to a list of whole messages, such as ["hou op", "stoppa"]; each needs a letter and has at most 200'
        " characters.",
    ),
}


def check_values(**_: Any) -> list[checks.CheckMessage]:
    """Every setting has the right type and a sensible value."""
    return setting_rules.check_values(app_settings, RULES)


def check_names(**_: Any) -> list[checks.CheckMessage]:
    """No setting is misspelled: it would be ignored without a word."""
    return setting_rules.check_names(app_settings, check_id="turns.W001")


def check_apps(**_: Any) -> list[checks.CheckMessage]:
    """The apps below are installed."""
    return setting_rules.check_apps("turns", "governance", check_id="turns.E050")


def check_chat_model(**_: Any) -> list[checks.CheckMessage]:
    """The chat model can be found, and a provider's has its package and its key. None is made, and nobody is asked."""
    name = app_settings.CHAT_MODEL
    if not _is_name(name) or name == LOCAL:
        return []
    if not public_name(name):
        return setting_rules.check_path(
            name,
            what="There is no chat model",
            otherwise=RULES["CHAT_MODEL"].hint,
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
    name = app_settings.DISPATCHER
    if not _is_name(name):
        return []
    if name == PROCRASTINATE:
        return _check_procrastinate()
    return setting_rules.check_path(
        path_of(name),
        what="There is no dispatcher",
        otherwise=RULES["DISPATCHER"].hint,
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
    """A lease is renewed in time, and given up well before others take it: no turn ever has two owners (H4)."""
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
    bound, grace = app_settings.CANCEL_BOUND, governance_settings.CANCEL_GRACE
    found: list[checks.CheckMessage] = []
    if bound >= _INSTANT:
        found.append(
            checks.Warning(
                f"TURNS_CANCEL_BOUND is {bound:g} s: a cancelled turn may take longer than a second to end.",
                hint="Set it below 1 second.",
                id="turns.W003",
            )
        )
    if bound <= grace:
        found.append(
            checks.Warning(
                f"TURNS_CANCEL_BOUND is {bound:g} s, not more than GOVERNANCE_CANCEL_GRACE: turns end before their"
                " tools had the time that they were given, and real results are lost.",
                hint="Set it above GOVERNANCE_CANCEL_GRACE.",
                id="turns.W004",
            )
        )
    if app_settings.POLL_INTERVAL > _INSTANT:
        found.append(
            checks.Warning(
                "TURNS_POLL_INTERVAL is above 1 second: a cancel whose message was lost is obeyed that late.",
                hint="Set it to 1 second or less.",
                id="turns.W005",
            )
        )
    return found


def register_all() -> None:
    """Register the checks with Django."""
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
