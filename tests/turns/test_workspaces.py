"""Workspaces are for the server's user alone, those of an older release too."""

import stat

import pytest

from tests.turns.support import Stage
from turns.testing import call, text

pytestmark = pytest.mark.django_db(transaction=True)


def rights(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


@pytest.mark.parametrize("is_old", [False, True])
async def test_what_an_agent_writes_is_private(stage: Stage, settings, tmp_path, is_old):
    root = tmp_path / "deep" / "workspaces"
    settings.GOVERNANCE_WORKSPACE_ROOT = root
    settings.GOVERNANCE_EXEC_ENABLED = True
    if is_old:
        root.mkdir(parents=True)
        root.chmod(0o755)
    stage.play(
        [
            call("a", "write_file", path="notes/a.txt", content="x"),
            call("b", "exec", command="umask; mkdir made && touch made/b.txt"),
        ],
        [text("Done.")],
        [text("Again.")],
    )
    assert (await stage.ended(await stage.say())).status == "completed"
    [workspace] = root.iterdir()
    expected = {root: "0o700", workspace: "0o700"}
    expected |= {workspace / name: "0o700" for name in ("notes", "made")}
    expected |= {workspace / name: "0o600" for name in ("notes/a.txt", "made/b.txt")}
    assert {path: rights(path) for path in expected} == expected
    workspace.chmod(0o755)
    assert (await stage.ended(await stage.say())).status == "completed"
    assert rights(workspace) == "0o700"
