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
    provider's name](../howto/real-models.md) before the model's name, as in `anthropic:…`. `package.module:factory`
    is your own function that returns a chat model."""

    CHAT_MODEL_BASE_URL: Annotated[
        str,
        Setting(
            "turns.E014",
            is_valid=_is_url_or_empty,
            hint="the address of a server, with https:// or http://, or to an empty string",
            kind="address",
        ),
    ] = ""
    """The server for `openai:…` instead of OpenAI, through chat completions."""

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
    as in `house:qwen3:8b`. `base_url` is its address. `key_variable` is the environment variable with its key;
    without it, no key is sent. `api` is the [provider](../howto/real-models.md) whose API it uses; the default is
    `openai-chat`. Administrators can choose among these names but not change the endpoints."""

    CHAT_MODEL_FIRST_BYTE_TIMEOUT: Annotated[float, Setting("turns.E015", 0.1, WEEK)] = 120.0
    """How long a provider may take to send the first byte of its answer. An agent can override this."""

    CHAT_MODEL_IDLE_TIMEOUT: Annotated[float, Setting("turns.E016", 0.1, WEEK)] = 120.0
    """How long a provider may be silent in the middle of its answer. Any data ends the silence, even an empty
    keep-alive. An agent can override this."""

    CHAT_MODEL_REQUEST_TIMEOUT: Annotated[float, Setting("turns.E066", 0.1, WEEK)] = 1200.0
    """How long one answer of a provider may take in total, so that endless keep-alives end as well. An agent can
    override this."""

    CHAT_MODEL_RETRIES: Annotated[int, Setting("turns.E017", 0, 100)] = 3
    """How often a request that failed before the model's first output is repeated. `0` means never."""

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
    provider is overloaded in the middle of the answer. None of its tool calls has run by then. In other turns, a person
    can send "go on", which keeps the text so far; a sub-agent has no person to do so."""

    INSTRUCTIONS: Annotated[str, Setting("turns.E002")] = ""
    """Instructions at the start of every chat model's prompt."""

    MAX_TOOLS: Annotated[int, Setting("turns.E044", 1, 100_000)] = 256
    """How many tools a chat model is offered. OpenAI accepts at most 128, whatever you set. The tools of this site
    come first, then those of MCP servers; the chat names tools that are [left
    out](../howto/agents.md#how-many-tools)."""

    MAX_TOOL_TOKENS: Annotated[int, Setting("turns.E045", 1, 100_000_000)] = 40_000
    """About how many tokens of each request the offered tools may use."""

    TURN_TIMEOUT: Annotated[
        float | None, Setting("turns.E003", 0, WEEK, none="no limit, as 0 does")
    ] = 1800.0
    """How long a turn may take in total. `0` and `None` mean that there is no limit (T10)."""

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
    """How queued turns reach a process that runs them. With `embedded`, the processes that serve users run them. With
    `runners`, separate processes run them, which PostgreSQL notifies. You can also write the dotted path of your own
    class."""

    MAX_LIVE: Annotated[int, Setting("turns.E022", 1, 10_000)] = 50
    """How many turns can be busy in one process. Further turns wait. The next one is that of the user with the
    fewest running turns, then the one that has waited longest. A turn that waits for a person's decision or for
    another turn is not busy, so many simultaneous decisions can exceed the limit (P4)."""

    MAX_QUEUED: Annotated[int, Setting("turns.E005", 1, 10_000)] = 20
    """How many messages can wait in one conversation; further ones are refused (P4)."""

    MAX_MESSAGES_PER_MINUTE: Annotated[int, Setting("turns.E039", 1, 100_000)] = 120
    """Messages of one user in any sixty seconds, through every interface and across all processes, counted in the
    transaction that accepts them. Further ones are refused with `too_many_messages` (HTTP 429); a cancel word that
    cancels something is not counted."""

    MAX_MESSAGE_LENGTH: Annotated[int, Setting("turns.E006", 1, 100_000_000, kind="characters")] = (
        50_000
    )
    """The longest message."""

    CHAT_MODEL_MEDIA: Annotated[
        Sequence[str] | None,
        Setting(
            "turns.E052",
            is_valid=_are_modalities,
            hint='a list of "image" and "pdf", or to an empty list',
            none="as the provider is known for",
        ),
    ] = None
    """The file types that providers' chat models can see in addition to text, if they differ from the defaults:
    `["image", "pdf"]`, `["image"]` or `[]`. With `None`, models of Anthropic, OpenAI and Google can see images and
    PDF, and all others only text."""

    ATTACHMENT_STORAGE: Annotated[str, Setting("turns.E053")] = ""
    """The storage of [attachments](../howto/attachments.md): the name of an entry in Django's `STORAGES` that no
    web server serves. If it is empty, attachments are disabled."""

    ATTACHMENT_TYPES: Annotated[
        Sequence[str],
        Setting(
            "turns.E054",
            is_valid=_are_media_types,
            hint="a list of " + ", ".join(f'"{name}"' for name in (*IMAGE_TYPES, PDF, TEXT)),
        ),
    ] = (*IMAGE_TYPES, PDF, TEXT)
    """Accepted types of files, detected from their contents. `text/plain` is any text in UTF-8, including tables
    and source code."""

    ATTACHMENT_MAX_BYTES: Annotated[int, Setting("turns.E055", 1, 1_000_000_000, kind="bytes")] = (
        20_000_000
    )
    """The largest accepted file."""

    ATTACHMENT_MAX_PIXELS: Annotated[
        int, Setting("turns.E056", 1, 1_000_000_000, kind="pixels")
    ] = 50_000_000
    """The largest accepted image, as width times height. It is stored with at most 2,000 pixels on its longer
    side."""

    ATTACHMENT_TIMEOUT: Annotated[float, Setting("turns.E057", 0.1, 600)] = 20.0
    """How long the worker process may take to read one file."""

    ATTACHMENT_TEXT_LENGTH: Annotated[
        int, Setting("turns.E058", 1, 10_000_000, kind="characters")
    ] = 100_000
    """How much of a document's text is sent to a chat model that cannot read the file itself."""

    ATTACHMENTS_PER_MESSAGE: Annotated[int, Setting("turns.E059", 1, 100)] = 10
    """How many files a message may have."""

    ATTACHMENT_QUOTA: Annotated[int, Setting("turns.E060", 1, 10**15, kind="bytes")] = 500_000_000
    """The total size of one user's files in all conversations."""

    CANCEL_WORDS: Annotated[
        Sequence[str],
        Setting(
            "turns.E043",
            is_valid=_are_cancel_phrases,
            hint='a list of whole messages, such as ["hou op", "stoppa"]; each needs a letter and has at most 200 characters',
        ),
    ] = ()
    """Additional whole messages that mean "stop", besides the [usual words](../howto/cancel-words.md) of eleven
    languages. Case, accents and punctuation do not matter (C6)."""

    POLL_INTERVAL: Annotated[float, Setting("turns.E007", 0.01, 3_600)] = 1.0
    """How often stored cancel requests and edited limits are read, in case their notification was lost (C12)."""

    CANCEL_BOUND: Annotated[float, Setting("turns.E008", 0.01, 60)] = 0.85
    """How long after a cancel a turn is ended, whatever its tools do (C1)."""

    SWEEP_INTERVAL: Annotated[float, Setting("turns.E030", 0.01, 3_600)] = 2.0
    """How often each process looks for turns whose process is gone, plus or minus a fifth (H4)."""

    PROCESS_NAME: Annotated[str, Setting("turns.E051")] = ""
    """The name of this process in the admin. If it is empty, the admin shows its host and pid. A runner uses its
    `--name` instead."""

    LEASE_RENEW_INTERVAL: Annotated[float, Setting("turns.E031", 0.01, 3_600)] = 3.0
    """How often a process renews its lease (H4)."""

    LEASE_FENCE_AFTER: Annotated[float, Setting("turns.E032", 0.01, 3_600)] = 10.0
    """How long after the last renewal a process gives up its own turns."""

    LEASE_TTL: Annotated[float, Setting("turns.E033", 0.01, 3_600)] = 15.0
    """How long after the last renewal, by the database's clock, other processes end the turns of a process."""

    PARK_AFTER: Annotated[int | None, Setting("turns.E041", 1, 50, none="never")] = 3
    """After how many turns that ended with their process a conversation is parked, until a person resumes it.
    `None` means never (H4)."""

    PARK_WINDOW: Annotated[float, Setting("turns.E042", 1, WEEK)] = 600.0
    """The time within which that many turns must have ended for the conversation to be parked."""

    DRAIN_GRACE: Annotated[float, Setting("turns.E009", 0, 3_600)] = 15.0
    """How long running turns may continue when the server is asked to stop. After that they are cancelled with the
    reason `shutdown`."""

    LOOP_WARN_AFTER: Annotated[
        int | None, Setting("turns.E011", 2, 10_000, none="no loop detector")
    ] = 4
    """After how many repetitions the model is warned. `None` disables the detector (A4)."""

    LOOP_HALT_AFTER: Annotated[int | None, Setting("turns.E012", 3, 10_000, none="never")] = 8
    """After how many repetitions the turn is stopped. `None` means never (A4)."""

    MAX_DEPTH: Annotated[int, Setting("turns.E034", 0, 100)] = 3
    """How deep sub-agents can be nested. With `0`, agents cannot start sub-agents (C10)."""

    MAX_CHILDREN: Annotated[int, Setting("turns.E035", 1, 10_000)] = 5
    """How many sub-agents of one turn can run at the same time (C10)."""

    MAX_FAMILY: Annotated[int, Setting("turns.E037", 1, 10_000)] = 20
    """How many sub-agents can run at the same time for one message of a person, at any depth (C10)."""

    MAX_FAMILY_TOTAL: Annotated[int, Setting("turns.E038", 1, 100_000)] = 100
    """How many sub-agents can be started in total for one message of a person (C10), including those that have
    ended."""

    REPORT_GRACE: Annotated[float, Setting("turns.E036", 0, 3_600)] = 15.0
    """How long a sub-agent that reached its limit may take to report its results so far. With `0`, it reports
    nothing."""

    SNAPSHOT_MESSAGES: Annotated[int, Setting("turns.E013", 1, 10_000)] = 200
    """How many messages and calls a page receives at first; earlier ones are fetched on demand."""

    HISTORY_CACHE_MEMORY: Annotated[int, Setting("turns.E046", 0, 10**12, kind="bytes")] = (
        64_000_000
    )
    """About how much memory of each process the cached histories of its conversations may use in total. The least
    recently used ones are dropped. If its history is cached, a turn reads only the messages added since. A thousand
    messages use about half a megabyte plus their texts. With `0`, every turn reads its whole history."""

    TRACE_CONTENT: Annotated[bool, Setting("turns.E063")] = False
    """Whether [traces](../howto/traces.md) contain users' messages, answers of chat models, and arguments and
    results of tools."""


app_settings = TurnsSettings()
