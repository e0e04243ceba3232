"""Anything may stand in an address or a form of our admin. It is answered, and never by an error of the server."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.db import DataError, models
from django.db.backends.utils import CursorWrapper
from django.test import Client, RequestFactory
from django.urls import reverse

from tests.console.permission_table import our_admins, pages_of

pytestmark = pytest.mark.django_db(transaction=True)

HUGE = "9" * 30
NUL = "a\x00b"
NO_ADDRESS = "nonsense"
MANY_WORDS, LONG_WORD = (
    "word " * 2_000,
    "x" * 50_010,
)  # SQLite builds no condition of so many, and no pattern so long
HALF_A_CHARACTER = "%ED%A0%80"  # of a pair, as some programs encode it
LATEST = "9999-12-31T23:59:59-23:59"  # no other zone has it any more
ODD: dict[type[Any], tuple[tuple[str, str], ...]] = {
    models.AutoField: (("", HUGE), ("__in", f"1,{HUGE}"), ("__range", "1")),
    models.BooleanField: (("", NUL), ("__exact", HUGE), ("__gt", "x")),
    models.CharField: (("", NUL), ("__range", ""), ("__regex", "("), ("__iregex", "(a+)+$")),
    models.DateTimeField: (
        ("__gte", LATEST),
        ("__year", HUGE),
        ("", "2026-02-30"),
        ("__date", NUL),
    ),
    models.ForeignKey: (("", HUGE), ("__in", HUGE), ("__id__exact", NUL), ("__isnull", "?")),
    models.IntegerField: (("", HUGE), ("__lt", f"-{HUGE}"), ("__in", "1e400"), ("__nope", "1")),
    models.JSONField: (("__contains", NUL), ("__range", "1"), ("__a__b", NUL), ("", "[")),
    models.UUIDField: (("", NUL), ("__in", "x"), ("__gt", HUGE)),
}
VIEW = [
    ("q", NUL), ("o", f"-{HUGE}.x"), ("p", f"-{HUGE}"), ("when", NUL), ("when_from", LATEST),
    ("when_until", "2026-13-45T99:99"), ("nothing__exact", NUL), ("__", "1"), ("_to_field", NUL),
]  # fmt: skip
OF_PAGE = [  # what is read apart stands in one address
    [("span", NUL), ("show", NUL), ("did", NUL), ("events", HUGE), ("_changelist_filters", NUL)],
    [("when_from", LATEST)],
    [("_to_field", "")],
]
KEYS = (NUL, HUGE, f"-{HUGE}", "_00", "é" * 500, "x")


def odd_queries(model: type[models.Model]) -> Iterator[str]:
    """Every way to ask for a list: odd values for one column of each kind, filters that are typed, how it looks."""
    columns = model._meta.concrete_fields
    for kind, lookups in ODD.items():
        of_kind = next((column for column in columns if isinstance(column, kind)), None)
        if of_kind is not None:
            pairs = [(f"{of_kind.name}{lookup}", value) for lookup, value in lookups]
            yield from (urlencode([pair]) for pair in pairs)
            yield f"{of_kind.name}__exact={HALF_A_CHARACTER}"


def columns_of(model: type[models.Model]) -> dict[str, Any]:
    return {field.name: field for field in model._meta.get_fields() if field.concrete}


def filters_of(model_admin: Any) -> Iterator[str]:
    own = {str(getattr(filter_, "parameter_name", "")) for filter_ in model_admin.list_filter} - {
        ""
    }
    for name in sorted(own):
        yield from (urlencode([(name, value)]) for value in (NUL, HUGE, "h:" + HUGE))


@pytest.fixture(autouse=True)
def _as_strict_as_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the character NUL in a text, and an address that is none, whatever the database."""

    def strict(execute: Callable[..., Any]) -> Callable[..., Any]:
        def execute_strictly(cursor: Any, sql: str, params: Any = None, *more: Any) -> Any:
            values = params.values() if isinstance(params, dict) else params or ()
            if any(isinstance(value, str) and "\0" in value for value in values):
                raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
            if '"ip_address" = ' in sql and NO_ADDRESS in values:
                raise DataError("invalid input syntax for type inet")
            return execute(cursor, sql, params, *more)

        return execute_strictly

    monkeypatch.setattr(CursorWrapper, "_execute", strict(CursorWrapper._execute))


@pytest.fixture
def visitor(admin_user) -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(admin_user)
    return client


@pytest.mark.parametrize("model_admin", our_admins(), ids=lambda it: it.opts.model_name)
def test_no_page_of_the_admin_stumbles_over_its_address(planted, visitor, model_admin):
    view, of_page = (urlencode([pair]) for pair in VIEW), [*map(urlencode, OF_PAGE)]
    of_list = [*odd_queries(model_admin.model), *filters_of(model_admin), *view]
    stumbled = set()
    for address, _needs in pages_of(model_admin):
        is_list = address.endswith(f"/{model_admin.opts.model_name}/")
        for query in of_list if is_list else of_page:
            if visitor.get(f"{address}?{query}").status_code >= 500:
                stumbled.add(f"{address}?{query[:60]}")
    assert stumbled == set()


@pytest.mark.parametrize("model_admin", our_admins(), ids=lambda it: it.opts.model_name)
def test_no_page_of_the_admin_stumbles_over_the_key_of_a_row(planted, visitor, model_admin):
    name = f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}"
    addresses = [
        reverse(f"{name}_{page}", args=[key])
        for page in ("change", "delete", "history")
        for key in KEYS
    ]
    assert [page for page in addresses if visitor.get(page).status_code >= 500] == []
    actions = [action for action in model_admin.actions or () if isinstance(action, str)]
    posted = [{"action": name, "index": "0", "_selected_action": KEYS} for name in actions]
    answers = [visitor.post(reverse(f"{name}_changelist"), sent) for sent in posted]
    # What was chosen cannot be there: the list is shown again, and says that no row is chosen.
    assert [answer.status_code for answer in answers] == [200] * len(actions)


@pytest.mark.parametrize("page", ["changelist", "add", "autocomplete"])
def test_nor_does_any_other_page_of_the_sites_admin(visitor, admin_user, page):
    """Those that Django itself brings, and forms that an address fills."""
    stumbled = set()
    for model, of_model in admin.site._registry.items():
        meta = model._meta
        query = {"app_label": meta.app_label, "model_name": meta.model_name}
        if page == "autocomplete":
            fields = of_model.get_autocomplete_fields(None)
            queries = [query | {"field_name": name, "term": NUL} for name in fields]
        elif page == "add":  # a form reads each of its fields
            names = [*columns_of(model), "_popup"]
            queries = [
                dict.fromkeys(names, NUL),
                dict.fromkeys(names, NO_ADDRESS),
                {"_to_field": NUL},
            ]
        else:  # one column of each kind
            kinds = {type(column): name for name, column in columns_of(model).items()}
            asked = (*kinds.values(), "_popup", "_to_field", "q")
            queries = [{name: value} for name in asked for value in (NUL, NO_ADDRESS)]
        name = page if page == "autocomplete" else f"{meta.app_label}_{meta.model_name}_{page}"
        for query in queries:
            address = f"{reverse(f'admin:{name}')}?{urlencode(query)}"
            if visitor.get(address).status_code >= 500:
                stumbled.add(address)
    assert stumbled == set()


@pytest.mark.parametrize("search", [MANY_WORDS, LONG_WORD], ids=["words", "word"])
def test_a_search_that_is_too_long_is_answered_by_a_sentence(planted, visitor, search):
    stumbled, count = set(), 0
    for model, of_model in admin.site._registry.items():
        if not of_model.search_fields:
            continue
        count += 1
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        answer = visitor.get(f"{address}?{urlencode({'q': search})}", follow=True)
        is_told = "The search was too long" in answer.content.decode()
        if answer.status_code != 200 or (answer.redirect_chain and not is_told):
            stumbled.add((address, answer.status_code))
        for field in of_model.get_autocomplete_fields(None):
            query = {"app_label": model._meta.app_label, "model_name": model._meta.model_name}
            query |= {"field_name": field, "term": search}
            if (
                visitor.get(f"{reverse('admin:autocomplete')}?{urlencode(query)}").status_code
                != 200
            ):
                stumbled.add((address, field))
    assert count > 10
    assert stumbled == set()


def test_nor_does_an_action_of_any_list_stumble_over_the_key_of_a_row(visitor, admin_user):
    """Lists of Django and of other apps, too."""
    request = RequestFactory().get("/")
    request.user = admin_user
    stumbled, count = set(), 0
    for model, of_model in admin.site._registry.items():
        meta = model._meta
        address = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
        # That action of django-axes fails whatever is chosen: it misses something in the request.
        for action in of_model.get_actions(request).keys() - {"cleanup_expired_attempts"}:
            for key in KEYS:
                sent = {"action": action, "index": "0", "_selected_action": [key], "why": "x"}
                count += 1
                if visitor.post(address, sent).status_code >= 500:
                    stumbled.add((address, action, key))
    assert count > len(KEYS)
    assert stumbled == set()


def test_a_list_that_fails_by_itself_still_says_so(visitor, monkeypatch):
    """What nobody has asked for is no lookup that makes no sense."""

    def fail(*_args: Any) -> None:
        raise ValueError("a fault")

    address = reverse("admin:auth_group_changelist")
    monkeypatch.setattr(type(admin.site._registry[Group]), "get_queryset", fail)
    assert visitor.get(address).status_code == 500
    asked = visitor.get(f"{address}?q=x")
    assert asked.headers["Location"] == f"{address}?e=1"
    assert visitor.get(asked.headers["Location"]).status_code == 500


def test_what_makes_no_sense_is_left_out_and_what_costs_too_much_is_refused(planted, visitor):
    exports, calls = (
        reverse(f"admin:governance_{name}_changelist") for name in ("export", "toolcall")
    )
    assert visitor.get(f"{exports}?rows__in=x").headers["Location"] == f"{exports}?e=1"
    assert visitor.get(f"{calls}?call_id__regex=(a%2B)%2B$").status_code == 400
    assert "call_id__startswith" in str(
        visitor.get(f"{calls}?call_id__startswith=ru&when=any").content
    )
