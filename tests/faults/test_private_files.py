"""What a chat leaves on the disk is for the server's user alone, as most shells would start the server."""

import pytest

from tests.faults.conftest import MakeSite

pytestmark = pytest.mark.timeout(120)


def test_what_tools_and_people_put_on_the_disk_is_private(embedded: MakeSite):
    site = embedded()
    site.serve()
    client = site.client()
    conversation = client.converse()
    attached = {"attachments": [client.attach("notes.txt", b"private")]}
    for said in ("write sub/a.txt: hello", 'call exec {"command": "mkdir z; echo x > z/y"}'):
        turn = client.say(conversation, said, **attached)
        attached = {}
        if "exec" in said:
            client.approve(turn)
        [call] = client.until_ended(turn)["calls"]
        assert call["status"] == "succeeded"
    places = [site.var / "workspaces", site.var / "attachments"]
    found = [path for place in places for path in (place, *place.rglob("*"))]
    assert {"a.txt", "y"} <= {path.name for path in found}
    assert any(path.is_file() for path in places[1].rglob("*"))
    assert [path for path in found if path.stat().st_mode & 0o077] == []
