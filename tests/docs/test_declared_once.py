"""What is declared once: an event and an operation of a client, each one class here, are everywhere by themselves."""

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from django.db import transaction
from ninja import NinjaAPI
from ninja.testing import TestAsyncClient
from typing_extensions import TypedDict

from tests.turns.row_factory import RowFactory
from turns import EVENTS, TurnEvent
from turns.events import log
from turns.services import OpOutcome
from webchat import operations
from webchat.api import add_operation
from webchat.protocol import javascript_types, schema_docs
from webchat.protocol.client_frames import parse
from webchat.protocol.fields import Text
from webchat.protocol.json_schema import type_of
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
    page, script = schema_docs.render(), javascript_types.render()
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
    page, script = schema_docs.render(), javascript_types.render()
    assert "#### `rate_turn`\n\nSay how good an answer was.\n" in page
    typed = '{type: "rate_turn", op_id: string, stars: number, remark?: string, turn_id: string}'
    assert f"Readonly<{typed}>}} RateTurnFrame" in script
