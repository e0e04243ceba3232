"""What the tests of the admin share: a turn with a secret in every text that anybody can write."""

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone

from console import running_results
from governance import activity, services
from governance.models import (
    Approval,
    DefaultPolicy,
    Export,
    McpServer,
    McpServerChange,
    ToolCall,
)
from tests.staff import sign_in
from tests.turns.row_factory import RowFactory, make_process, make_question, make_repair, said, use
from turns.models import (
    Acknowledgement,
    Agent,
    AgentChange,
    Attachment,
    CancelRequest,
    Conversation,
    ConversationChange,
    DeadlineOrder,
    DisconnectPolicy,
    DisconnectPolicyChange,
    Event,
    Turn,
)
from webchat import api_tokens

SECRET = "zanzibar"


@pytest.fixture
def admin_user(transactional_db):
    return get_user_model().objects.create_superuser("boss", "boss@example.org", "pw")


@pytest.fixture
def admin_client(admin_user):
    return sign_in(admin_user)


@pytest.fixture
def said_things(ada):
    """A turn in which every text that people, models or tools can write has the secret in it."""
    factory = RowFactory(ada)
    Conversation.objects.update(title=f"about {SECRET}")
    named, words = [{"name": SECRET}], {"text": SECRET}
    turn = factory.turn(
        "running",
        user_message=f"say {SECRET}",
        attachments=named,
        error_detail=SECRET,
        summary=SECRET,
    )
    factory.message(turn, "assistant", said(SECRET), use("c1"))
    factory.call(turn, "c1", "abandoned", late_kind="returned", late_text=SECRET, result=SECRET)
    ToolCall.objects.update(input=words, detail=words, progress=words, images=named)
    at = timezone.now()
    request = CancelRequest.objects.create(
        turn=turn, reason="admin", source="admin", by_name="olga", note="why", requested_at=at
    )
    Acknowledgement.objects.create(
        request=request, turn=turn, said=SECRET, source="typed", text=SECRET, at=at
    )
    make_question(
        turn, "c1", tool_name="exec", input={"command": SECRET}, rule="always", requested_at=at
    )
    Event.objects.create(
        conversation_id=turn.conversation_id,
        turn=turn,
        seq=1,
        type="message",
        payload={"text": SECRET},
        at=at,
    )
    Conversation.objects.update(last_seq=1)
    make_repair(turn, at=at)
    return turn


@pytest.fixture
def planted(said_things, ada, monkeypatch, caplog) -> Turn:
    """A row of each model; one running call, one that waiting for a person, and one parked conversation."""
    monkeypatch.setattr(running_results, "SETTLES_WITHIN", 0.0)
    caplog.set_level("ERROR", logger="django.request")  # each refusal has a traceback
    factory = RowFactory(conversation=said_things.conversation)
    at = timezone.now()
    factory.call(said_things, "runs", "running", started_at=at, timeout_ms=90_000)
    factory.call(said_things, "asks", "awaiting_approval", tool_name="exec")
    Approval.objects.filter(call_id="c1").update(decision="denied", decided_at=at, reason=SECRET)
    make_question(
        said_things,
        "asks",
        tool_name="exec",
        input={"command": SECRET},
        rule="always",
        requested_at=at,
    )
    Conversation.objects.create(owner=ada, parked_at=at)
    make_process()
    services.save_tool_policy(tool_name="exec", values={"timeout_ms": 30_000}, by=None)
    api_tokens.issue(user=ada, name="nightly", by=ada)
    Agent.objects.create(name="planner")
    McpServer.objects.create(name="tools", transport="http")
    Attachment.objects.create(
        owner=ada, conversation=factory.conversation, name=f"{SECRET}.txt", text=SECRET,
        media_type="text/plain", size=1, status="stored",
    )  # fmt: skip
    Export.objects.create(source="turns.Turn", format="csv")
    for model in (DefaultPolicy, DisconnectPolicy):
        model.objects.get_or_create(pk=1)
    CancelRequest.objects.create(
        turn=said_things, tool_id="c1", reason="user", source="button", by_name="ada", note=SECRET,
        requested_at=at, settled_at=at,
    )  # fmt: skip
    DeadlineOrder.objects.create(turn=said_things, tool_id="c1", extend_ms=1_000, note=SECRET)
    activity.record("cancel", "cancel", group=str(said_things.pk), note=SECRET)
    for change in (AgentChange, DisconnectPolicyChange, McpServerChange):
        change.objects.create(action="change")
    ConversationChange.objects.create(action="delete", conversation_id=factory.id)
    return said_things
