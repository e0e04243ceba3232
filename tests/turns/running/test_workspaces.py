"""Workspaces are for the server's user alone, those of an older release too."""

import stat
from collections.abc import Iterator

import pytest

from governance import Isolation, ToolContext, make_tool, registry
from tests.turns.endings.test_report_delivery import REPORT
from tests.turns.support import ChatDriver
from tests.turns.tools.scripted_agents import child, ended, spawn, use_scripts
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


def rights(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


@pytest.fixture
def site_tools() -> Iterator[None]:
    """A tool that needs no directory, and one that writes there without a look at it."""

    async def hello() -> str:
        return "Hello"

    def note(context: ToolContext) -> str:
        (context.workspace / "note").write_text("x")
        return "noted"

    made = (make_tool(hello), make_tool(note, isolation=Isolation.THREAD))
    for tool in made:
        registry.register(tool)
    yield
    for tool in made:
        registry.unregister(tool.name)


@pytest.mark.parametrize("is_old", [False, True])
async def test_what_an_agent_writes_is_private(chat: ChatDriver, settings, tmp_path, is_old):
    root = tmp_path / "deep" / "workspaces"
    settings.GOVERNANCE_WORKSPACE_ROOT = root
    settings.GOVERNANCE_EXEC_ENABLED = True
    if is_old:
        root.mkdir(parents=True)
        root.chmod(0o755)
    chat.use_script(
        [
            call("a", "write_file", path="notes/a.txt", content="x"),
            call("b", "exec", command="umask; mkdir made && touch made/b.txt"),
        ],
        [text("Done.")],
        [call("c", "list_files")],
        [text("Again.")],
    )
    assert (await chat.ended(await chat.say())).status == "completed"
    [workspace] = root.iterdir()
    expected = {root: "0o700", workspace: "0o700"}
    expected |= {workspace / name: "0o700" for name in ("notes", "made")}
    expected |= {workspace / name: "0o600" for name in ("notes/a.txt", "made/b.txt")}
    assert {path: rights(path) for path in expected} == expected
    workspace.chmod(0o755)
    assert (await chat.ended(await chat.say())).status == "completed"
    assert rights(workspace) == "0o700"


@pytest.mark.usefixtures("site_tools")
async def test_a_conversation_that_uses_no_files_has_no_directory(
    chat: ChatDriver, settings, tmp_path
):
    settings.GOVERNANCE_WORKSPACE_ROOT = tmp_path / "workspaces"
    turn = await chat.play([call("a", "hello")], [text("Done.")])
    assert (await chat.calls(turn.pk))["a"].status == "succeeded"
    assert not (tmp_path / "workspaces").exists()


@pytest.mark.usefixtures("site_tools")
async def test_a_tool_of_the_site_finds_the_directory_made(chat: ChatDriver, settings, tmp_path):
    settings.GOVERNANCE_WORKSPACE_ROOT = tmp_path / "workspaces"
    turn = await chat.play([call("a", "note")], [text("Done.")])
    assert (await chat.calls(turn.pk))["a"].status == "succeeded"
    assert rights(tmp_path / "workspaces" / str(chat.id)) == "0o700"


@pytest.mark.usefixtures("site_tools")
async def test_a_directory_that_cannot_be_made_fails_the_call_and_not_the_turn(
    chat: ChatDriver, settings, tmp_path
):
    (tmp_path / "workspaces").write_text("a file is in its place")
    settings.GOVERNANCE_WORKSPACE_ROOT = tmp_path / "workspaces"
    turn = await chat.play([call("a", "list_files"), call("b", "hello")], [text("Done.")])
    made = await chat.calls(turn.pk)
    assert (turn.status, made["b"].status) == ("completed", "succeeded")
    assert "The workspace directory cannot be used" in made["a"].result


async def test_a_link_that_an_agent_puts_in_the_place_of_its_sub_agents_leads_nowhere(
    chat: ChatDriver, settings, tmp_path
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    settings.GOVERNANCE_WORKSPACE_ROOT = tmp_path / "workspaces"
    settings.GOVERNANCE_EXEC_ENABLED = True
    settings.GOVERNANCE_APPROVAL = {"exec": "never"}
    swap = (
        "until [ -e sub-agents/*/first ]; do sleep 0.05; done; mv sub-agents moved; mkdir sub-agents; "
        f"ln -s {outside} sub-agents/$(ls moved); touch moved/$(ls moved)/swapped"
    )
    use_scripts(
        chat,
        go=[[spawn("a", "read it")], [call("b", "exec", command=swap)], [text("Done.")]],
        read_it=[
            [call("c", "exec", command="touch first; until [ -e swapped ]; do sleep 0.05; done")],
            [call("d", "read_file", path="secret"), call("e", "exec", command="cat secret")],
            [call("f", "write_file", path="made", content="x")],
            [text("Fine.")],
        ],
        **{REPORT: [[text("So it is.")]]},
    )
    turn = await chat.run("go")
    made = (await chat.calls(turn.pk))["b"]
    assert made.status == "succeeded", made.result
    below = await ended(await child("read it"))
    assert {id: made.status for id, made in (await chat.calls(below.pk)).items()} == {
        "c": "succeeded",
        "d": "failed",
        "e": "failed",
        "f": "failed",
    }
    assert [path.name for path in outside.iterdir()] == ["secret"]
