"""The project's settings: `TURNS_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from governance import is_cancel_phrase
from governance.app_settings import WEEK, AppSettings, Setting

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF, TEXT = "application/pdf", "text/plain"
MEDIA_TYPES = {*IMAGE_TYPES, PDF, TEXT}
MODALITIES = {"image", "pdf"}  # the kinds of files that a chat model may read


_ENDPOINT = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RepeatSteps(StrEnum):
    """The turns in which an answer that was cut off is requested again."""

    NONE = "none"
    SUB_AGENTS = "sub-agents"
    ALL = "all"


def _is_name(value: str) -> bool:
    return bool(value.strip())


def _is_url_or_empty(value: str) -> bool:
    return not value or value.startswith(("http://", "https://"))


def _are_endpoints(endpoints: Mapping[str, Mapping[str, str]]) -> bool:
    return all(_ENDPOINT.fullmatch(name) and _is_endpoint(end) for name, end in endpoints.items())


def _is_endpoint(endpoint: Mapping[str, str]) -> bool:
    try:
        url = urlsplit(endpoint.get("base_url", ""))
    except ValueError:
        return False
    is_address = url.scheme in {"http", "https"} and bool(url.hostname) and "@" not in url.netloc
    variable = endpoint.get("key_variable")
    is_variable = variable is None or bool(_VARIABLE.fullmatch(variable))
    return is_address and is_variable and endpoint.keys() <= {"base_url", "key_variable", "api"}


def _are_media_types(values: Sequence[str]) -> bool:
    return set(values) <= MEDIA_TYPES


def _are_modalities(values: Sequence[str]) -> bool:
    return set(values) <= MODALITIES


def _are_cancel_phrases(values: Sequence[str]) -> bool:
    return all(map(is_cancel_phrase, values))


class TurnsSettings(AppSettings):
    """Every setting of turns. The docstring of a setting is its line in `docs/settings/turns.md`."""

    PREFIX = "TURNS_"

    CHAT_MODEL: Annotated[
        str,
        Setting(
            "turns.E001",
            is_valid=_is_name,
            hint='"local", to a provider\'s model such as "openai:gpt-5", or to "package.module:factory"',
        ),
    ] = "local"
    """The chat model that answers. `local` is built in and needs no key. For a provider's model, write [the
    provider's name](../howto/real-models.md) before the model's name, as in `anthropic:…`. A path such as
    `package.module:factory` names your own function that returns a chat model."""

    CHAT_MODEL_BASE_URL: Annotated[
        str,
        Setting(
            "turns.E014",
            is_valid=_is_url_or_empty,
            hint="the address of a server, with https:// or http://, or to an empty string",
            kind="address",
        ),
    ] = ""
    """The address of a server to use instead of OpenAI for models named `openai:…`, through its Chat Completions
    API."""

    CHAT_MODEL_ENDPOINTS: Annotated[
        Mapping[str, Mapping[str, str]],
        Setting(
            "turns.E067",
            is_valid=_are_endpoints,
            hint='a dict of names and endpoints, such as {"house": {"base_url": "http://10.0.0.5:8000/v1", '
            '"key_variable": "HOUSE_KEY"}}; a name has small letters, digits, "-" and "_", "api" is optional',
            kind="dict: name → endpoint",
        ),
    ] = {}
    """Servers that agents may use in addition to the providers. Write an endpoint's name before the model's name,
    as in `house:qwen3:8b`. `base_url` is the endpoint's address. `key_variable` names the environment variable that
    contains its key; without it, no key is sent. `api` is the [provider](../howto/real-models.md) whose API it uses,
    by default `openai-chat`. Administrators can choose among these endpoints but not change them."""

    CHAT_MODEL_FIRST_BYTE_TIMEOUT: Annotated[float, Setting("turns.E015", 0.1, WEEK)] = 120.0
    """How long a provider may take to send the first byte of its answer. An agent can override this."""

    CHAT_MODEL_IDLE_TIMEOUT: Annotated[float, Setting("turns.E016", 0.1, WEEK)] = 120.0
    """How long a provider may remain silent in the middle of its answer. Any data ends the silence, even an empty
    keep-alive. An agent can override this."""

    CHAT_MODEL_REQUEST_TIMEOUT: Annotated[float, Setting("turns.E066", 0.1, WEEK)] = 1200.0
    """How long one answer of a provider may take in total, so that endless keep-alives end as well. An agent can
    override this."""

    CHAT_MODEL_RETRIES: Annotated[int, Setting("turns.E017", 0, 100)] = 3
    """How many times a request that failed before the model's first output is repeated. `0` means never."""

    CHAT_MODEL_RETRY_MAX_WAIT: Annotated[float, Setting("turns.E018", 0, WEEK)] = 60.0
    """The longest wait before a request is repeated."""

    REPEAT_STEPS: Annotated[
        RepeatSteps,
        Setting(
            "turns.E070",
            hint='"none", "sub-agents" or "all"',
            kind='"none", "sub-agents" or "all"',
        ),
    ] = RepeatSteps.SUB_AGENTS
    """Which turns discard an answer and request it again, at most three times, if the connection breaks or the
    provider is overloaded in the middle of the answer. By then, none of the answer's tool calls has run. In other
    turns, a person can send "go on", which keeps the text so far; no person can do so in a sub-agent's turn."""

    INSTRUCTIONS: Annotated[str, Setting("turns.E002")] = ""
    """Instructions for every chat model, which precede the agent's own instructions in each request."""

    MAX_TOOLS: Annotated[int, Setting("turns.E044", 1, 100_000)] = 256
    """Maximum number of tools that a chat model is offered. OpenAI accepts at most 128, whatever you set. The tools of
    this site come first, then those of MCP servers. The chat names the tools that are [left
    out](../howto/agents.md#how-many-tools)."""

    MAX_TOOL_TOKENS: Annotated[int, Setting("turns.E045", 1, 100_000_000)] = 40_000
    """Approximate maximum number of tokens that the offered tools may use in each request."""

    TURN_TIMEOUT: Annotated[
        float | None, Setting("turns.E003", 0, WEEK, none="no limit, as 0 does")
    ] = 1800.0
    """How long a turn may take in total. `0` or `None` means no limit (T10)."""

    STEP_LIMIT: Annotated[int, Setting("turns.E004", 1, 100_000)] = 50
    """How many model requests a turn may make (T10)."""

    MAX_CALLS_PER_ANSWER: Annotated[int, Setting("turns.E065", 1, 10_000)] = 100
    """How many tool calls one answer of a chat model may contain. Further calls are refused with `too_many_calls`;
    the model may repeat them in its next answer (P4)."""

    DISPATCHER: Annotated[
        str,
        Setting(
            "turns.E021",
            is_valid=_is_name,
            hint='"embedded", to "runners", or to "package.module.Class"',
        ),
    ] = "embedded"
    """Where queued turns run. With `embedded`, they run in the process that serves users; with `runners`, in separate
    processes, which PostgreSQL notifies. You can also write the dotted path of your own dispatcher class."""

    MAX_LIVE: Annotated[int, Setting("turns.E022", 1, 10_000)] = 50
    """Maximum number of busy turns in one process. Further turns wait. When a slot becomes free, a turn of the user
    with the fewest running turns starts; among equals, the turn that has waited longest. A turn that waits for a person's
    decision or for another turn is not busy, so the limit can be exceeded if many such turns continue at the same time
    (P4)."""

    MAX_QUEUED: Annotated[int, Setting("turns.E005", 1, 10_000)] = 20
    """Maximum number of messages that wait in one conversation; further messages are refused (P4)."""

    MAX_MESSAGES_PER_MINUTE: Annotated[int, Setting("turns.E039", 1, 100_000)] = 120
    """Maximum number of messages that one user may send within any sixty seconds, through every interface and across
    all processes. They are counted in the transaction that accepts them. Further messages are refused with
    `too_many_messages` (HTTP 429). A cancel word that cancels something is not counted."""

    MAX_MESSAGE_LENGTH: Annotated[int, Setting("turns.E006", 1, 100_000_000, kind="characters")] = (
        50_000
    )
    """Maximum length of a message."""

    CHAT_MODEL_MEDIA: Annotated[
        Sequence[str] | None,
        Setting(
            "turns.E052",
            is_valid=_are_modalities,
            hint='a list of "image" and "pdf", or to an empty list',
            none="as the provider is known for",
        ),
    ] = None
    """The types of files that chat models of providers can read in addition to text: `["image", "pdf"]`, `["image"]`
    or `[]`. `None` means the default of each provider: images and PDF for Anthropic, OpenAI and Google, and only text
    for your own server."""

    ATTACHMENT_STORAGE: Annotated[str, Setting("turns.E053")] = ""
    """The storage of [attachments](../howto/attachments.md): the name of an entry in Django's `STORAGES` whose files no
    web server serves. If it is empty, attachments are disabled."""

    ATTACHMENT_TYPES: Annotated[
        Sequence[str],
        Setting(
            "turns.E054",
            is_valid=_are_media_types,
            hint="a list of " + ", ".join(f'"{name}"' for name in (*IMAGE_TYPES, PDF, TEXT)),
        ),
    ] = (*IMAGE_TYPES, PDF, TEXT)
    """The types of files that are accepted as attachments. The type is detected from the file's contents. `text/plain`
    is any text in UTF-8, including tables and source code."""

    ATTACHMENT_MAX_BYTES: Annotated[int, Setting("turns.E055", 1, 1_000_000_000, kind="bytes")] = (
        20_000_000
    )
    """Maximum size of an attached file."""

    ATTACHMENT_MAX_PIXELS: Annotated[
        int, Setting("turns.E056", 1, 1_000_000_000, kind="pixels")
    ] = 50_000_000
    """Maximum number of pixels (width times height) of an attached image. The image is stored with at most 2,000
    pixels on its longer side."""

    ATTACHMENT_TIMEOUT: Annotated[float, Setting("turns.E057", 0.1, 600)] = 20.0
    """How long the worker process may take to read one attached file."""

    ATTACHMENT_TEXT_LENGTH: Annotated[
        int, Setting("turns.E058", 1, 10_000_000, kind="characters")
    ] = 100_000
    """Maximum length of the text of a document that is sent to a chat model that cannot read the file itself."""

    ATTACHMENTS_PER_MESSAGE: Annotated[int, Setting("turns.E059", 1, 100)] = 10
    """Maximum number of files that may be attached to a message."""

    ATTACHMENT_QUOTA: Annotated[int, Setting("turns.E060", 1, 10**15, kind="bytes")] = 500_000_000
    """Maximum total size of the files that one user has attached in all conversations."""

    CANCEL_WORDS: Annotated[
        Sequence[str],
        Setting(
            "turns.E043",
            is_valid=_are_cancel_phrases,
            hint='a list of whole messages, such as ["hou op", "stoppa"]; each needs a letter and has at most 200 characters',
        ),
    ] = ()
    """Whole messages that mean "stop", in addition to the [usual words](../howto/cancel-words.md) of eleven languages.
    Case, accents and punctuation do not matter (C6)."""

    POLL_INTERVAL: Annotated[float, Setting("turns.E007", 0.01, 3_600)] = 1.0
    """How often a process that runs turns reads stored cancel requests and edited limits, in case a notification about
    them was lost (C12)."""

    CANCEL_BOUND: Annotated[float, Setting("turns.E008", 0.01, 60)] = 0.85
    """The time after a cancel at which the turn is ended even if its tools are still running (C1)."""

    SWEEP_INTERVAL: Annotated[float, Setting("turns.E030", 0.01, 3_600)] = 2.0
    """How often each process looks for turns whose process has died. Each interval varies randomly by up to a fifth
    (H4)."""

    PROCESS_NAME: Annotated[str, Setting("turns.E051")] = ""
    """The name of this process in the admin. If it is empty, the name is the host and the pid, or the `--name` of a
    runner."""

    LEASE_RENEW_INTERVAL: Annotated[float, Setting("turns.E031", 0.01, 3_600)] = 3.0
    """How often a process renews its lease (H4)."""

    LEASE_FENCE_AFTER: Annotated[float, Setting("turns.E032", 0.01, 3_600)] = 10.0
    """The time since the last renewal of its lease after which a process gives up its own turns."""

    LEASE_TTL: Annotated[float, Setting("turns.E033", 0.01, 3_600)] = 15.0
    """The time since the last renewal, by the database's clock, after which the lease of a process expires and other
    processes end its turns."""

    PARK_AFTER: Annotated[int | None, Setting("turns.E041", 1, 50, none="never")] = 3
    """How many turns of a conversation must be interrupted by the end of their process before the conversation is
    parked until a person resumes it. `None` means that conversations are never parked (H4)."""

    PARK_WINDOW: Annotated[float, Setting("turns.E042", 1, WEEK)] = 600.0
    """The period in which the turns that `TURNS_PARK_AFTER` counts must have been interrupted."""

    DRAIN_GRACE: Annotated[float, Setting("turns.E009", 0, 3_600)] = 15.0
    """How long running turns may continue after the server was asked to stop. After that, they are cancelled with the
    reason `shutdown`."""

    LOOP_WARN_AFTER: Annotated[
        int | None, Setting("turns.E011", 2, 10_000, none="no loop detector")
    ] = 4
    """Number of repetitions after which the model is warned. `None` disables the loop detector (A4)."""

    LOOP_HALT_AFTER: Annotated[int | None, Setting("turns.E012", 3, 10_000, none="never")] = 8
    """Number of repetitions after which the turn is stopped. `None` means that the turn is never stopped (A4)."""

    MAX_DEPTH: Annotated[int, Setting("turns.E034", 0, 100)] = 3
    """Maximum depth to which sub-agents can be nested. `0` means that there are no sub-agents (C10)."""

    MAX_CHILDREN: Annotated[int, Setting("turns.E035", 1, 10_000)] = 5
    """How many sub-agents of one turn can run at the same time (C10)."""

    MAX_FAMILY: Annotated[int, Setting("turns.E037", 1, 10_000)] = 20
    """How many sub-agents can run at the same time for one message of a person, at any depth (C10)."""

    MAX_FAMILY_TOTAL: Annotated[int, Setting("turns.E038", 1, 100_000)] = 100
    """How many sub-agents can be started in total for one message of a person, including those that have ended
    (C10)."""

    REPORT_GRACE: Annotated[float, Setting("turns.E036", 0, 3_600)] = 15.0
    """How long a sub-agent that reached its limit may take to report its results so far. `0` means that it makes no
    report."""

    SNAPSHOT_MESSAGES: Annotated[int, Setting("turns.E013", 1, 10_000)] = 200
    """How many messages and calls the chat page receives when it opens a conversation; earlier ones are fetched on
    demand."""

    HISTORY_CACHE_MEMORY: Annotated[int, Setting("turns.E046", 0, 10**12, kind="bytes")] = (
        64_000_000
    )
    """Approximate maximum memory that the cached histories of conversations may use in each process. The least recently
    used histories are dropped first. If the history of its conversation is cached, a turn reads only what was added
    since. A thousand messages take about half a megabyte plus their texts. `0` means that every turn reads its whole
    history."""

    TRACE_CONTENT: Annotated[bool, Setting("turns.E063")] = False
    """Whether [traces](../howto/traces.md) contain users' messages, answers of chat models, and arguments and
    results of tools."""


app_settings = TurnsSettings()
