"""What is declared once is everywhere by itself: an event, an operation, a setting, a limit, a reason, a tool."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import Client, override_settings
from ninja import NinjaAPI
from ninja.testing import TestAsyncClient
from typing_extensions import TypedDict

from config import environment
from governance import registry, services, setting_rules, tool
from governance import selectors as governance_selectors
from governance.app_settings import AppSettings, Setting
from governance.core.policy import resolve
from governance.policies import read_policies
from scripts import settings_docs
from tests.docs.pages import ROOT
from tests.processes import run_python
from tests.turns.row_factory import RowFactory
from turns import EVENTS, TurnEvent
from turns.agents.offers import offer
from turns.events import log
from turns.services import OpOutcome
from webchat import operations
from webchat.api import add_operation
from webchat.protocol import generators
from webchat.protocol.client_frames import parse
from webchat.protocol.fields import Text
from webchat.protocol.generators import type_of
from webchat.protocol.operation import OPERATIONS, Operation, Requester, Result
from webchat.protocol.server_frames import OpResult, event_frames

KNOWN_EVENTS, KNOWN_OPERATIONS = dict(EVENTS), dict(OPERATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRated(TurnEvent):
    """A person has said how good an answer was."""

    type: ClassVar = "turn_rated"
    follows_end: ClassVar = True
    stars: int
    remark: str | None = None


class RatingAnswer(TypedDict):
    """The rating is stored."""

    ok: bool
    stars: int


class RateTurn(Operation):
    """Say how good an answer was."""

    name: ClassVar = "rate_turn"
    path: ClassVar = "/turns/{turn_id}/rating"
    answers: ClassVar = {201: RatingAnswer}

    stars: int
    remark: Text = ""

    async def perform(self, requester: Requester) -> Result:
        return Result(OpOutcome.ACCEPTED, {"ok": True, "stars": self.stars})


OUR_EVENTS = {name: event for name, event in EVENTS.items() if name not in KNOWN_EVENTS}
OUR_OPERATIONS = {name: asked for name, asked in OPERATIONS.items() if name not in KNOWN_OPERATIONS}
for _registry, _ours in ((EVENTS, OUR_EVENTS), (OPERATIONS, OUR_OPERATIONS)):
    for _name in _ours:
        del _registry[_name]  # the other tests know nothing of them


@pytest.fixture(autouse=True)
def _declared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, event in OUR_EVENTS.items():
        monkeypatch.setitem(EVENTS, name, event)
    for name, operation in OUR_OPERATIONS.items():
        monkeypatch.setitem(OPERATIONS, name, operation)


@pytest.mark.django_db(transaction=True)
def test_an_event_goes_through_the_log_to_clients(django_user_model: Any):
    factory = RowFactory(django_user_model.objects.create_user("ada"))
    turn = factory.turn()
    with transaction.atomic():
        (sent,) = log.append(log.locked(factory.id), turn.pk, TurnRated(stars=5))
    (frame,) = (frame for frame in event_frames() if type_of(frame) == "turn_rated")
    read = frame.model_validate(sent).model_dump()
    assert (read["seq"], read["turn_id"], read["stars"], read["remark"]) == (
        1,
        str(turn.pk),
        5,
        None,
    )
    assert "remark" not in sent


def test_an_event_is_on_the_page_of_the_protocol_and_in_the_types_of_the_chat_page():
    page, script = generators.docs(), generators.script()
    assert "#### `turn_rated`\n\nA person has said how good an answer was.\n" in page
    typed = '{type: "turn_rated", seq: number, turn_id: string, at: string, stars: number, remark?: string|null}'
    assert f"Readonly<{typed}>}} TurnRatedEvent" in script
    assert "|TurnRatedEvent" in script
    after_end, _, _ = script.partition("EVENTS_AFTER_END")[2].partition("]")
    assert '"turn_rated"' in after_end


async def test_an_operation_is_a_frame_that_a_socket_answers():
    sent = f'{{"type":"rate_turn","op_id":"o","turn_id":"{uuid4()}","stars":4}}'
    frame = parse(sent, max_bytes=1_000)
    assert isinstance(frame, RateTurn)
    answer = await operations.run_operation(frame, requester=Requester(user=None, source="button"))
    assert answer == OpResult(op_id="o", outcome="accepted")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> NinjaAPI:
    """Return an API with nothing but our operation."""
    monkeypatch.setenv("NINJA_SKIP_REGISTRY", "1")
    api = NinjaAPI(urls_namespace="declared once", auth=lambda _request: "ada")
    add_operation(api, RateTurn)
    return api


async def test_an_operation_is_an_endpoint_of_the_api(api: NinjaAPI):
    answer = await TestAsyncClient(api).post(f"/turns/{uuid4()}/rating", json={"stars": 3})
    assert (answer.status_code, answer.json()) == (201, {"ok": True, "stars": 3})
    (described,) = api.get_openapi_schema(path_prefix="/api/")["paths"].values()
    assert described["post"]["description"] == "Say how good an answer was."
    body = described["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert body.endswith("/RateTurn")
    assert "RatingAnswer" in str(described["post"]["responses"][201])


def test_an_operation_is_on_the_page_of_the_protocol_and_in_the_types_of_the_chat_page():
    page, script = generators.docs(), generators.script()
    assert "#### `rate_turn`\n\nSay how good an answer was.\n" in page
    typed = '{type: "rate_turn", op_id: string, stars: number, remark?: string, turn_id: string}'
    assert f"Readonly<{typed}>}} RateTurnFrame" in script


class ShopSettings(AppSettings):
    """The settings of an app that does not exist."""

    PREFIX = "SHOP_"

    MAX_ITEMS: Annotated[int, Setting("shop.E001", 1, 50)] = 10
    """How many items fit into a basket (P4)."""


def test_a_setting_is_checked_read_from_the_environment_and_documented():
    shop = ShopSettings()
    assert shop.MAX_ITEMS == 10
    with override_settings(SHOP_MAX_ITEMS=51, SHOP_MAX_ITEM=1):
        assert shop.MAX_ITEMS == 51
        (error,) = setting_rules.check_values(shop)
        (warning,) = setting_rules.check_names(shop, check_id="shop.W001")
    assert (error.id, error.msg) == ("shop.E001", "SHOP_MAX_ITEMS is 51.")
    assert error.hint == "Set it to a whole number from 1 to 50."
    assert "SHOP_MAX_ITEMS" in str(warning.hint)
    assert environment.read({"SHOP_MAX_ITEMS": "7"}, ShopSettings) == {"SHOP_MAX_ITEMS": 7}
    with pytest.raises(ImproperlyConfigured, match=r"SHOP_MAX_ITEMS .* a whole number"):
        environment.read({"SHOP_MAX_ITEMS": "many"}, ShopSettings)
    page = "| Setting |\n|---|\n| `SHOP_GONE` | number |\n"
    line = "| `SHOP_MAX_ITEMS` | integer | `10` | How many items fit into a basket | `shop.E001` |"
    assert settings_docs.refresh(page, ShopSettings) == f"| Setting |\n|---|\n{line}\n"


IN_THE_POLICY = "    error_text: Annotated["
OUR_LIMIT = "    warning_after: Annotated[float | None, LimitField(_first_span, 60.0, is_live=True)] = None\n"
IN_THE_ROW = "    note = models.TextField("
OUR_COLUMN = '    warning_after_ms = span(_("warning after"), _("0 = never."))\n'
BEFORE_ERRORS = "    ERROR = ("
OUR_REASON = """    BUDGET = (
        "budget",
        _Row(label=_("the month's budget"), on_page=_("as the budget is spent"), who="the budget",
             ended="the budget was spent", turn_status="failed"),
    )
"""


def test_a_limit_and_a_reason_are_everywhere_by_themselves(tmp_path: Path):
    """The change itself, in a copy of the app: two lines and a migration of Django's, and one row."""
    copy = tmp_path / "governance"
    shutil.copytree(ROOT / "governance", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for file, place, line in (
        (copy / "core" / "policy.py", IN_THE_POLICY, OUR_LIMIT),
        (copy / "models" / "policies.py", IN_THE_ROW, OUR_COLUMN),
        (copy / "core" / "cancel_reasons.py", BEFORE_ERRORS, OUR_REASON),
    ):
        source = file.read_text("utf-8")
        assert source.count(place) == 1
        file.write_text(source.replace(place, line + place), "utf-8")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT))),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "TEST_DATABASE_URL": f"sqlite:///{tmp_path / 'db.sqlite3'}",
    }
    answer = run_python("tests/docs/new_declarations.py", environment=environment, directory=ROOT)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert found.pop("reason") == {
        "to the model": '[CANCELLED] Tool "wait" was not started. It was cancelled by the budget. It had no effect.',
        "of a turn before": "the budget was spent",
        "status": "failed",
        "in the admin": "the month's budget",
        "on the page": "as the budget is spent",
        "in JavaScript": True,
        "no change of tables": True,
    }
    saved = found.pop("saved")
    assert saved.startswith("Version 2. wait: warning after: 5 s → 2 min.")
    assert "The new limits now apply to running calls of this process" in saved
    assert found == {
        "built in": 60.0,
        "edited": 5.0,
        "audited": "warning after: not set → 5 s",
        "refused": ["warning_after_ms"],
        "form": ["Warning after", "5 s"],
        "in force": 120.0,
        "viewer": True,
    }


@pytest.fixture
def _shop() -> Iterator[None]:
    @tool(title="Ship an order", timeout=7, approval="always")
    async def ship_order(order: int) -> str:
        """Send an order on its way."""
        return f"Order {order} is on its way."

    yield
    registry.unregister("ship_order")


@pytest.mark.usefixtures("_shop")
@pytest.mark.django_db(transaction=True)
def test_a_tool_is_offered_limited_and_in_the_admin(admin_client: Client):
    found = governance_selectors.find_tool("ship_order")
    assert found is not None
    offered = offer([found], None, chat_models=["local"])
    assert [it.name for it in offered.tools] == ["ship_order"]
    shown = registry.get("ship_order")
    assert (shown.description, list(shown.input_schema["properties"])) == (
        "Send an order on its way.",
        ["order"],
    )
    assert resolve(read_policies().levels(shown)).timeout == 7
    page = admin_client.get("/admin/governance/toolpolicy/").content.decode()
    assert "ship_order" in page
    form = admin_client.get("/admin/turns/agent/add/").content.decode()
    assert 'value="ship_order"' in form
    services.save_tool_policy(tool_name="ship_order", values={"timeout_ms": 3_000}, by=None)
    assert resolve(read_policies().levels(shown)).timeout == 3
