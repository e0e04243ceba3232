"""The pages of sub-agents: who works where for whom, on both sides of the link (C10)."""

import pytest

from tests.turns.row_factory import RowFactory, said, use
from turns import selectors
from turns.models import Conversation

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def family(person) -> tuple[RowFactory, RowFactory]:
    """A conversation whose turn has asked a sub-agent, and the place where that one works."""
    above, below = RowFactory(person), RowFactory(person)
    Conversation.objects.filter(pk=above.id).update(title="Holes <b>and</b> gold")
    Conversation.objects.filter(pk=below.id).update(parent=above.id, agent="digger")
    turn = above.turn()
    above.message(turn, "assistant", use("a1", "sessions_ask"))
    above.call(turn, "a1", tool_name="sessions_ask")
    child = below.turn(
        parent=turn, parent_tool_id="a1", depth=1, agent="digger", user_message="dig"
    )
    below.message(child, "assistant", said("Gold."))
    return above, below


async def test_the_page_of_a_sub_agent_leads_to_whom_it_works_for(family, page_of):
    above, below = family
    html = await page_of(below.id)
    assert f'href="/c/{above.id}/"' in html
    assert "Holes &lt;b&gt;and&lt;/b&gt; gold" in html
    assert "digger is working here for another agent." in html
    assert 'id="composer" hidden' in html


async def test_the_page_of_a_person_has_no_such_thing(family, page_of):
    above, _ = family
    html = await page_of(above.id)
    assert "is working here for another agent" not in html
    assert 'id="composer" hidden' not in html


async def test_a_snapshot_names_who_works_for_a_call(family, person):
    above, below = family
    snapshot = await selectors.snapshot(conversation_id=above.id, user=person)
    [call] = snapshot["calls"]
    assert call["sub_agent"] == {
        "turn_id": call["sub_agent"]["turn_id"],
        "conversation_id": str(below.id),
        "agent": "digger",
        "status": "completed",
        "is_detached": False,
    }


@pytest.fixture
def page_of(person, async_client):
    async def page(conversation_id) -> str:
        await async_client.aforce_login(person)
        response = await async_client.get(f"/c/{conversation_id}/")
        assert response.status_code == 200
        return response.content.decode()

    return page
