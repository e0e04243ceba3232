"""System checks: every setting, each with an id, a hint and a line in the documentation."""

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.test import override_settings

from governance import services
from governance.checks import check_routers
from governance.conf import app_settings, toolbox_settings
from governance.core.registry import make_tool, registry
from tests.governance.toolbox.bubblewrap import install_bubblewrap

BAD = {
    "DEFAULT_TIMEOUT": (-1, "60", True, float("nan"), 10**9),
    "TOOL_TIMEOUTS": (None, {"exec": "60"}, {"exec": -1}, {1: 60}, 60),
    "TIMEOUT_CEILING": (-1, None),
    "MCP_VARIABLES": ("TOKEN", None, [7], ["two words"], ["*"]),
    "CANCEL_GRACE": (-0.1, 61),
    "KILL_GRACE": (-0.1, 61),
    "MAX_RUNNING": (0, 1.5, True),
    "MAX_QUEUED": (-1, None),
    "MAX_RUNNING_PER_SCOPE": (0,),
    "QUEUE_TIMEOUT": (0, None),
    "MAX_THREADS": (0,),
    "MAX_DATABASE_THREADS": (0,),
    "MAX_WORKERS": (0,),
    "PROGRESS_INTERVAL": (0, "5"),
    "RESULT_LIMIT": (10,),
    "ADMIN_CSP": (1, True),
    "EXEC_ENABLED": ("false", 1),
    "LIMIT_NOTE_REQUIRED": ("yes", 1),
    "EXEC_OUTPUT_LIMIT": (0,),
    "EXEC_ENVIRONMENT": ("HOME", [1]),
    "WORKSPACE_ROOT": ("relative/path", None),
    "FILE_MAX_BYTES": (0,),
    "WORKSPACE_QUOTA": (-1, 1000, "1 GB", True, 1.5),
    "EXEC_MAX_PROCESSES": (1, -1, True, None),
    "EXEC_MEMORY": (1_000, "2G"),
    "EXEC_FILE_SIZE": (10, None),
    "EXEC_TMP_SIZE": (-5, 1),
    "EXEC_CPU_TIME": (0.5, -1),
    "WEB_ALLOW_PRIVATE": ("no",),
    "WEB_ASK_HOSTS": ("no",),
    "WEB_KNOWN_HOSTS": ("example.org", [""], 1),
    "WEB_MAX_BYTES": (-1,),
    "EXEC_SANDBOX": ("docker", None, True, ""),
    "EXEC_NETWORK": ("no",),
    "EXEC_READABLE": ("/opt", ["opt"], [""], [1]),
    "GIT_AUTHOR": ("", "Agent", "agent@localhost", None),
    "SEARCH_PROVIDER": ("", "bing", "a..b", None),
    "SEARCH_URL": ("127.0.0.1", "ftp://a/", "http://", "http://user@host/", "http://[", None),
    "BROWSER_PATH": ("chromium", None),
    "BROWSER_SANDBOX": ("yes", True),
    "BROWSER_IDLE": (0, None),
    "BROWSER_MAX_PAGES": (0,),
    "APPROVAL": (None, ["exec"], {"exec": "sometimes"}, {"exec": None}, {1: "always"}),
    "APPROVAL_TIMEOUT": (None, -1, "600"),
    "ERROR_TEXT": ("exec", [1], [""], None),
}


@pytest.fixture(autouse=True)
def safe_settings(settings):
    """A site without anything to complain of."""
    for name in dir(django_settings):
        if name.startswith("GOVERNANCE_"):
            delattr(settings, name)
    settings.DEBUG = False


def found():
    return {message.id: message for message in run_checks(tags=["governance"])}


def test_the_defaults_are_fine():
    assert found() == {}


def test_a_wrong_value_is_an_error_with_the_settings_own_id(subtests: pytest.Subtests):
    for name, value in [(name, value) for name, values in BAD.items() for value in values]:
        with subtests.test(f"{name} = {value!r}"):
            with override_settings(**{f"GOVERNANCE_{name}": value}):
                message = found()[app_settings.DECLARED[name].rule.check]
            assert f"GOVERNANCE_{name}" in message.msg
            assert message.hint


def test_every_setting_has_a_check_of_its_own_and_a_wrong_value():
    assert set(app_settings.DECLARED) == set(BAD)
    ids = {setting.rule.check for setting in app_settings.DECLARED.values()}
    assert len(ids) == len(BAD)


def test_a_misspelled_setting_is_noticed():
    with override_settings(GOVERNANCE_DEFAULT_TIMOUT=5):
        message = found()["governance.W001"]
    assert "GOVERNANCE_DEFAULT_TIMOUT" in message.msg
    assert "GOVERNANCE_DEFAULT_TIMEOUT" in message.hint
    with override_settings(GOVERNANCE_XYZ=5):
        assert "GOVERNANCE_TOOL_TIMEOUTS" in found()["governance.W001"].hint


@pytest.mark.parametrize(
    ("setting", "value", "check_id"),
    [
        ("TOOL_TIMEOUTS", {"probe": 5, "prob": 5}, "governance.W002"),
        (
            "APPROVAL",
            {"probe": "always", "prob": "always", "gone": "never", "*": "never"},
            "governance.W021",
        ),
        ("ERROR_TEXT", ["probe", "prob", "*"], "governance.W045"),
    ],
)
def test_a_tool_that_is_not_installed_is_noticed(probe, setting, value, check_id):
    with override_settings(**{f"GOVERNANCE_{setting}": value}):
        message = found()[check_id]
    assert "'prob'" in message.msg
    assert "probe" in message.hint


def test_a_limit_of_the_settings_that_makes_an_idle_limit_unreachable_is_noticed():
    made = make_tool(lambda: None, name="odd", description="odd", timeout=20, idle_timeout=9)
    registry.register(made)
    try:
        assert "governance.W003" not in found()
        with override_settings(GOVERNANCE_TOOL_TIMEOUTS={"odd": 5}):
            assert "above its total limit of 5 s" in found()["governance.W003"].msg
    finally:
        registry.unregister("odd")


@pytest.mark.django_db
def test_a_limit_of_the_settings_without_effect_is_told_where_the_database_may_be_asked(probe):
    services.save_tool_policy(tool_name="probe", values={"timeout_ms": 9_000}, by=None)

    def told(**asked):
        messages = run_checks(**asked)
        return [message.msg for message in messages if message.id == "governance.I001"]

    with override_settings(GOVERNANCE_TOOL_TIMEOUTS={"probe": 5, "plain": 5}):
        [sentence] = told(tags=["database"], databases=["default"])
        assert "'probe'" in sentence
        assert told() == []
        services.save_tool_policy(tool_name="probe", values={"is_active": False}, by=None)
        assert told(tags=["database"], databases=["default"]) == []


@pytest.mark.parametrize(
    ("permission", "check_id"),
    [
        ("refund_order", "governance.E068"),
        (".refund_order", "governance.E068"),
        ("auth.refund_order", "governance.W046"),
        ("auth.add_group", None),
        ("turns.cancel_any", None),
    ],
)
def test_a_permission_that_nobody_can_have_is_noticed(permission, check_id):
    registry.register(make_tool(lambda: None, name="odd", description="odd", permission=permission))
    try:
        messages = found()
    finally:
        registry.unregister("odd")
    told = {one for one in ("governance.E068", "governance.W046") if one in messages}
    assert told == ({check_id} if check_id else set())
    if check_id:
        assert f"{permission!r}" in messages[check_id].msg
        assert messages[check_id].hint


def test_an_idle_limit_out_of_reach_is_noticed():
    registry.register(
        make_tool(lambda: None, name="odd", description="odd", timeout=5, idle_timeout=9)
    )
    try:
        assert "'odd'" in found()["governance.W003"].msg
    finally:
        registry.unregister("odd")


@pytest.mark.parametrize(
    ("values", "check_id"),
    [
        ({"CANCEL_GRACE": 0.9}, "governance.W004"),
        ({"DEFAULT_TIMEOUT": 7_200}, "governance.W005"),
        ({"TIMEOUT_CEILING": 60}, "governance.W005"),
        ({"MAX_RUNNING": 4}, "governance.W006"),
        ({"EXEC_ENABLED": True}, "governance.E021"),
        ({"EXEC_ENABLED": True, "WORKSPACE_ROOT": "/srv/workspaces"}, "governance.W007"),
        ({"WEB_ALLOW_PRIVATE": True}, "governance.W008"),
        ({"SEARCH_PROVIDER": "searxng"}, "governance.E035"),
        ({"SEARCH_PROVIDER": "nowhere.to_be.found"}, "governance.E060"),
    ],
)
def test_settings_that_do_not_fit_each_other_are_noticed(values, check_id):
    with override_settings(**{f"GOVERNANCE_{name}": value for name, value in values.items()}):
        message = found()[check_id]
    assert message.hint


@pytest.fixture
def no_sandbox(monkeypatch, tmp_path):
    """A machine whose system does not let bubblewrap work."""
    install_bubblewrap(tmp_path, "echo 'bwrap: No permissions' >&2\nexit 1")
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_sandbox")
def test_a_missing_sandbox_is_noticed_where_it_matters():
    workspaces = {"GOVERNANCE_WORKSPACE_ROOT": "/srv/workspaces"}
    on = {"GOVERNANCE_EXEC_ENABLED": True, **workspaces}
    with override_settings(GOVERNANCE_EXEC_ENABLED=False, GOVERNANCE_WORKSPACE_ROOT=""):
        assert "governance.W009" not in found()
    with override_settings(GOVERNANCE_EXEC_ENABLED=False, **workspaces):
        assert "governance.W009" not in found()
    with override_settings(**on):
        message = found()["governance.W009"]
        assert "commands run with all rights" in message.msg
        assert "bwrap: No permissions" in message.msg
        assert "apt install bubblewrap" in message.hint
    with override_settings(**on, GOVERNANCE_EXEC_SANDBOX="none"):
        assert "governance.W009" not in found()
    with override_settings(GOVERNANCE_EXEC_SANDBOX="bwrap"):
        message = found()["governance.E036"]
        assert "bwrap: No permissions" in message.msg


@pytest.fixture
def weak_sandbox(monkeypatch, tmp_path):
    """A machine with an old bubblewrap, that knows no sizes, and without the program that sets limits."""
    install_bubblewrap(
        tmp_path,
        'for i in "$@"; do [ $i = --size ] && exit 1; done\necho \'{"child-pid": 99999999}\'',
    )
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("weak_sandbox")
@pytest.mark.parametrize("user", [0, 1000])
def test_a_sandbox_that_is_weaker_than_it_looks_is_told(monkeypatch, user):
    monkeypatch.setattr("os.geteuid", lambda: user)
    with override_settings(
        GOVERNANCE_EXEC_ENABLED=True, GOVERNANCE_WORKSPACE_ROOT="/srv/workspaces"
    ):
        told = found()
    assert "governance.W009" not in told
    assert ("runs as root" in str(told.get("governance.W030"))) == (user == 0)
    assert "of processes, memory, the size of files." in told["governance.W031"].msg
    assert "the size of /tmp" in told["governance.W031"].msg
    with override_settings(GOVERNANCE_EXEC_ENABLED=False):
        assert not {"governance.W030", "governance.W031"} & set(found())


def test_a_wrong_value_is_not_complained_of_twice():
    with override_settings(GOVERNANCE_MAX_RUNNING=0):
        assert set(found()) == {"governance.E006"}


def test_settings_are_read_on_access():
    assert app_settings.MAX_RUNNING == 100
    with override_settings(
        GOVERNANCE_MAX_RUNNING=7, GOVERNANCE_EXEC_ENABLED=True, GOVERNANCE_WORKSPACE_ROOT="/srv"
    ):
        assert app_settings.MAX_RUNNING == 7
        assert toolbox_settings().exec_enabled
        assert toolbox_settings().workspace_root == "/srv"
    assert toolbox_settings().workspace_root == ""


def test_an_unknown_setting_is_an_attribute_error():
    with pytest.raises(AttributeError):
        app_settings.NOT_A_SETTING  # noqa: B018


class _Split:
    """Sends some models to another database than the rest, for reading or for writing."""

    def __init__(self, reads: str, writes: str) -> None:
        self._reads, self._writes = reads, writes

    def db_for_read(self, model, **hints):
        return "other" if model._meta.label == self._reads else None

    def db_for_write(self, model, **hints):
        return "other" if model._meta.label == self._writes else None


def test_routers_that_split_what_belongs_together_are_refused(settings):
    assert check_routers() == []
    for label in (
        settings.AUTH_USER_MODEL,
        "webchat.ApiToken",
        "turns.Turn",
        "governance.ToolCall",
    ):
        for split in (_Split(label, label), _Split(label, ""), _Split("", label)):
            settings.DATABASE_ROUTERS = [split]
            [message] = check_routers()
            assert message.id == "governance.E062"
            assert label in message.msg
