"""`python -m benchmarks.admin_pages`: what each page of the admin, and each single filter, costs in a large database.

It fails if one costs too much.

CPU, not time: of this process, in which SQLite works, and with `--postgres` of the database's backend as well.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

from benchmarks.measurement import process_clock
from benchmarks.progress import say
from benchmarks.site import scratch_site
from scripts.servers import Postgres, passing

MOST_MS = 200
ROUNDS = 2
WITHIN = "24h"  # the span within which filters are held to it
PRUNED_DAYS = 20  # leaves as many turns to delete as have contents
Clock = Callable[[], float]


def main() -> None:
    """Generate, look at every page, and print the dearest first; then prune, if that is wanted."""
    options = _options()
    with _database(postgres=options.postgres) as url, scratch_site(url):
        from benchmarks import admin_past  # noqa: PLC0415 - its models want Django
        from governance import registry  # noqa: PLC0415

        admin_past.generate(options.calls, tools=sorted(tool.name for tool in registry)[:12])
        _roll_up()
        over = _measure()
        _weigh_indexes()
        if options.prune:
            _prune()
    sys.exit(over > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.admin_pages", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--postgres", action="store_true", help="with a PostgreSQL of its own")
    parser.add_argument("--prune", action="store_true", help="time `manage.py prune` afterwards")
    return parser.parse_args()


@contextmanager
def _database(*, postgres: bool) -> Iterator[str]:
    if not postgres:
        yield ""
        return
    with passing(Postgres) as server:
        server.run("CREATE DATABASE pages")
        # The CPU of workers could not be read once they are gone.
        server.run("ALTER DATABASE pages SET max_parallel_workers_per_gather = 0")
        yield server.database_url("pages")


def _roll_up() -> None:
    from governance import rollups  # noqa: PLC0415

    began = time.perf_counter()
    for _hour in rollups.fill(timedelta(days=30)):
        pass
    say(f"A month rolled up in {time.perf_counter() - began:.0f} s")


def _measure() -> int:
    """Print what each page costs, and return how many cost too much."""
    from django.contrib.auth import get_user_model  # noqa: PLC0415
    from django.test import Client  # noqa: PLC0415

    client = Client(headers={"host": "localhost"})
    user = get_user_model().objects.create_superuser("operator")
    client.force_login(user)
    measured = []
    for address in _addresses(user):
        assert client.get(address, follow=True).status_code == 200, address
        measured.append((_cpu_ms(partial(client.get, address, follow=True)), address))
    print(f"\n{len(measured)} pages; CPU in ms, the least of {ROUNDS}:\n")
    for milliseconds, address in sorted(measured, reverse=True):
        print(f"{milliseconds:7.0f} {'*' if milliseconds > MOST_MS else ' '} {address}")
    over = sum(milliseconds > MOST_MS for milliseconds, _address in measured)
    print(f"\n{over} over {MOST_MS} ms")
    return over


def _addresses(user: Any) -> Iterator[str]:
    """Every list with nothing chosen, each choice of each filter within the day, a search, one row, our pages."""
    from django.contrib import admin  # noqa: PLC0415
    from django.urls import reverse  # noqa: PLC0415

    from governance.admin import tool_page  # noqa: PLC0415
    from governance.admin.readonly import ReadOnlyAdmin  # noqa: PLC0415

    yield reverse("admin:index")
    yield reverse("admin:turns_overview")
    for model, model_admin in admin.site._registry.items():
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        bare = reverse(f"{name}_changelist")
        yield bare
        if not isinstance(model_admin, ReadOnlyAdmin):
            continue
        yield from (reverse(figures) for _title, figures in model_admin.figures)
        yield from _choices(model_admin, user, bare)
        if (row := model._default_manager.order_by("-pk").first()) is not None:
            yield reverse(f"{name}_change", args=[row.pk])
    for span in ("1h", "24h", "7d", "30d"):
        yield f"{reverse('admin:governance_toolpolicy_changelist')}?span={span}"
    yield tool_page.address_of("web_fetch")


def _choices(model_admin: Any, user: Any, bare: str) -> Iterator[str]:
    from django.test import RequestFactory  # noqa: PLC0415

    request = RequestFactory().get(bare)
    request.user = user
    changelist = model_admin.get_changelist_instance(request)
    within = {"when": WITHIN} if "when" in map(_parameter_of, changelist.filter_specs) else {}
    for spec in changelist.filter_specs:
        for choice in spec.choices(changelist):
            query = choice["query_string"].removeprefix("?")
            if query and _parameter_of(spec) != "when":
                yield f"{bare}?{urlencode(within)}&{query}"
            elif query and f"when={WITHIN}" in query:
                yield f"{bare}?{query}"
    if changelist.search_fields:
        yield f"{bare}?{urlencode({**within, 'q': 'user7'})}"
        yield f"{bare}?{urlencode({'q': '00000000-0000-4000-8000-000000000000'})}"


def _parameter_of(spec: Any) -> str:
    return str(getattr(spec, "parameter_name", ""))


def _cpu_ms(look: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        clock = _clock()
        began = clock()
        look()
        times.append(clock() - began)
    return 1000 * min(times)


def _clock() -> Clock:
    """The CPU time of this process and of the backend that it asks."""
    from django.db import connection  # noqa: PLC0415

    if connection.vendor != "postgresql":
        return time.process_time
    connection.ensure_connection()
    backend = process_clock(connection.connection.info.backend_pid)
    return lambda: time.process_time() + backend()


def _weigh_indexes() -> None:
    """Print how many bytes each index takes for a row, of the tables that grow with turns."""
    from benchmarks.admin_past import COPIED  # noqa: PLC0415

    print("\nbytes a row\n")
    for model in COPIED:
        rows = model._default_manager.count()
        for index in model._meta.indexes:
            print(f"{_size_of(index.name) / max(rows, 1):7.0f}   {index.name}")


def _size_of(index: str) -> int:
    from django.db import connection  # noqa: PLC0415

    statement = (
        "SELECT sum(pgsize) FROM dbstat WHERE name = %s"
        if connection.vendor == "sqlite"
        else "SELECT pg_relation_size(%s)"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [index])
        [size] = cursor.fetchone()
    return int(size or 0)


def _prune() -> None:
    from django.core.management import call_command  # noqa: PLC0415

    began = time.perf_counter()
    call_command("prune", "--days", str(PRUNED_DAYS))
    print(f"prune took {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
