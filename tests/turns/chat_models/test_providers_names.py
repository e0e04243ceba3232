"""Names of providers' chat models, what is missing for them, and that nothing of a vendor is imported too early."""

import re
import sys
from dataclasses import replace

import pytest

from tests.docs.pages import ROOT
from tests.support import run_program
from tests.turns.chat_models.dialects import OPENAI, model_of
from tests.turns.chat_models.servers import gemini
from tests.turns.chat_models.test_providers_failures import failed
from turns.chat_models.catalog import get_chat_model
from turns.chat_models.providers import (
    PROVIDERS,
    ProviderChatModel,
    close_connections,
    problem_of,
    warm,
)

NAMES = ["anthropic:claude-sonnet-5-5", "openai:gpt-5.6-sol", "google:gemini-3.8-flash"]


@pytest.mark.parametrize("name", [*NAMES, "openai:library/qwen3:8b"])
def test_a_prefix_names_the_provider_and_the_rest_its_model(name):
    model = get_chat_model(name)

    assert isinstance(model, ProviderChatModel)
    assert model.name == name


# A name as the documentation has it, each variable that can hold its key, and the host that is asked.
PROVIDERS_BY_NAME = {
    "anthropic:claude-sonnet-5-5": (["ANTHROPIC_API_KEY"], "api.anthropic.com"),
    "google:gemini-3.8-flash": (
        ["GOOGLE_API_KEY", "GEMINI_API_KEY"],
        "generativelanguage.googleapis.com",
    ),
    "openai:gpt-5.6-sol": (["OPENAI_API_KEY"], "api.openai.com"),
    "openai-chat:gpt-5.6-sol": (["OPENAI_API_KEY"], "api.openai.com"),
    "openai-responses:gpt-5.6-sol": (["OPENAI_API_KEY"], "api.openai.com"),
    "alibaba:qwen3-max": (["ALIBABA_API_KEY"], "dashscope-intl.aliyuncs.com"),
    "cerebras:qwen-3-235b": (["CEREBRAS_API_KEY"], "api.cerebras.ai"),
    "deepseek:deepseek-v4-pro": (["DEEPSEEK_API_KEY"], "api.deepseek.com"),
    "fireworks:accounts/fireworks/models/kimi": (["FIREWORKS_API_KEY"], "api.fireworks.ai"),
    "moonshotai:kimi-k2.6": (["MOONSHOTAI_API_KEY"], "api.moonshot.ai"),
    "openrouter:anthropic/claude-sonnet-5.5": (["OPENROUTER_API_KEY"], "openrouter.ai"),
    "together:meta-llama/Llama-4": (["TOGETHER_API_KEY"], "api.together.xyz"),
    "zai:glm-5": (["ZAI_API_KEY"], "api.z.ai"),
}


@pytest.mark.parametrize("name", PROVIDERS_BY_NAME)
async def test_each_name_and_each_of_its_variables_make_a_model_that_asks_its_vendor(
    name, monkeypatch
):
    variables, host = PROVIDERS_BY_NAME[name]
    for variable in variables:
        monkeypatch.setenv(variable, "sk-dummy")
        assert problem_of(name) is None
        connection = await get_chat_model(name)._connection()
        await close_connections()
        monkeypatch.delenv(variable)

        assert connection._vendor.split()[-1] == host
        assert problem_of(name).code == "chat_model_key_missing"


def test_the_documentation_names_just_these_providers():
    page = (ROOT / "docs/howto/real-models.md").read_text("utf-8")
    rows = [row.split("|")[1] for row in page.splitlines() if row.startswith("| `")]
    prefixes = {name for row in rows for name in re.findall(r"`([a-z-]+):", row)}

    assert prefixes == {name.partition(":")[0] for name in PROVIDERS_BY_NAME} == set(PROVIDERS)


@pytest.mark.parametrize("name", NAMES)
async def test_without_a_key_the_person_is_told_which_one_is_missing(name):
    provider = PROVIDERS[name.partition(":")[0]]

    failure = await failed(get_chat_model(name))

    assert failure.code == "chat_model_key_missing"
    assert provider.keys[0] in failure.message
    assert problem_of(name).message == failure.message


async def test_without_its_packages_the_person_is_told_what_to_install(serve, monkeypatch):
    await serve()
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "turns.chat_models.vendors.openai", raising=False)

    failure = await failed(model_of(OPENAI))

    assert failure.code == "chat_model_not_installed"
    assert 'pip install "django-turnkeeper[openai]"' in failure.message


def test_a_missing_package_is_a_problem_before_a_missing_key(monkeypatch):
    gone = replace(PROVIDERS["openai"], package="no_such.sdk")
    monkeypatch.setitem(PROVIDERS, "openai", gone)

    assert problem_of("openai:gpt-5.6-sol").code == "chat_model_not_installed"


@pytest.mark.parametrize("name", ["local", "some.factory", "anthropic:"])
def test_what_is_no_providers_has_no_problem_here(name):
    assert problem_of(name) is None


def test_a_key_is_enough(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "set")

    assert problem_of("google:gemini-3.8-flash") is None


async def test_a_refused_key_is_named_by_the_variable_that_holds_it(serve, monkeypatch):
    await serve(gemini.error("401 Unauthorized", "No.", "UNAUTHENTICATED"))
    monkeypatch.delenv("GOOGLE_API_KEY")
    monkeypatch.setenv("GEMINI_API_KEY", "set")

    failure = await failed(get_chat_model("google:gemini-3.8-flash"))

    assert failure.code == "chat_model_key_refused"
    assert "GEMINI_API_KEY" in failure.message


def test_a_provider_can_be_imported_before_it_is_asked(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "set")
    monkeypatch.delitem(sys.modules, "turns.chat_models.vendors.openai", raising=False)

    warm("openai:gpt-5.6-sol").join(50)

    assert "turns.chat_models.vendors.openai" in sys.modules


@pytest.mark.parametrize("name", ["local", "some.factory", "openai:gpt-5.6-sol"])
def test_nothing_is_imported_in_vain(name):
    """Without a key nothing could be asked."""
    assert warm(name) is None


def test_nothing_of_a_vendor_is_imported_with_the_site():
    """It takes seconds, and none of it need be installed."""
    code = (
        "import sys, django; django.setup()\n"
        "import turns, config.asgi\n"
        "from turns.chat_models.catalog import get_chat_model\n"
        "get_chat_model('anthropic:claude-sonnet-5-5')\n"
        "vendors = {'pydantic_ai', 'anthropic', 'openai', 'google.genai', 'httpx2'}\n"
        "sys.exit(repr(vendors & set(sys.modules)) if vendors & set(sys.modules) else 0)"
    )
    done = run_program(
        [sys.executable, "-c", code],
        env={"DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": ".", "PATH": "/bin"},
    )

    assert done.returncode == 0, done.stderr
