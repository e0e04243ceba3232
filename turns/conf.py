"""The project's settings: `TURNS_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

from collections.abc import Sequence
from typing import Annotated

from governance import is_cancel_phrase
from governance.app_settings import WEEK, AppSettings, Setting

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
PDF, TEXT = "application/pdf", "text/plain"
MEDIA_TYPES = {*IMAGE_TYPES, PDF, TEXT}
MODALITIES = {"image", "pdf"}  # what a chat model may read beside text


def _is_name(value: str) -> bool:
    return bool(value.strip())


def _is_url_or_empty(value: str) -> bool:
    return not value or value.startswith(("http://", "https://"))


def _are_media_types(values: Sequence[str]) -> bool:
    return set(values) <= MEDIA_TYPES


def _are_modalities(values: Sequence[str]) -> bool:
    return set(values) <= MODALITIES


def _are_cancel_phrases(values: Sequence[str]) -> bool:
    return all(map(is_cancel_phrase, values))


class TurnsSettings(AppSettings):
    """Every setting; each docstring is its line in `docs/settings/turns.md`."""

    PREFIX = "TURNS_"

    CHAT_MODEL: Annotated[
        str,
        Setting(
            "turns.E001",
            is_valid=_is_name,
            hint='"local", to a provider\'s model such as "openai:gpt-5", or to "package.module:factory"',
        ),
    ] = "local"
    """Which chat model answers. `local` is built in and needs no key. `anthropic:…`, `openai:…` and `google:…` take the
    name of one of the provider's models. `package.module:factory` is a function of your own that returns one."""

    CHAT_MODEL_BASE_URL: Annotated[
        str,
        Setting(
            "turns.E014",
            is_valid=_is_url_or_empty,
            hint="the address of a server, with https:// or http://, or to an empty string",
            kind="address",
        ),
    ] = ""
    """The server that `openai:…` asks instead of OpenAI, if it speaks the same API."""

    CHAT_MODEL_FIRST_BYTE_TIMEOUT: Annotated[float, Setting("turns.E015", 0.1, WEEK)] = 120.0
    """How long a provider may take to begin its answer."""

    CHAT_MODEL_IDLE_TIMEOUT: Annotated[float, Setting("turns.E016", 0.1, WEEK)] = 120.0
    """How long a provider may be silent in the middle of its answer."""

    CHAT_MODEL_RETRIES: Annotated[int, Setting("turns.E017", 0, 100)] = 3
    """How often a request is repeated that failed before the model said anything. `0` = never."""

    CHAT_MODEL_RETRY_MAX_WAIT: Annotated[float, Setting("turns.E018", 0, WEEK)] = 60.0
    """The longest wait before a request is repeated."""

    INSTRUCTIONS: Annotated[str, Setting("turns.E002")] = ""
    """What every chat model is told first."""

    MAX_TOOLS: Annotated[int, Setting("turns.E044", 1, 100_000)] = 256
    """How many tools a chat model is offered. OpenAI takes 128, whatever stands here. The tools of this site go
    first, then those of MCP servers; what is [left out](../howto/agents.md#how-many-tools) is told."""

    MAX_TOOL_TOKENS: Annotated[int, Setting("turns.E045", 1, 100_000_000)] = 40_000
    """About how many tokens of each request the offered tools may take."""

    TURN_TIMEOUT: Annotated[
        float | None, Setting("turns.E003", 0, WEEK, none="no limit, as 0 does")
    ] = 1800.0
    """How long a turn may take in all. `0` or `None` = no limit (T10)."""

    STEP_LIMIT: Annotated[int, Setting("turns.E004", 1, 100_000)] = 50
    """How many model requests a turn may make (T10)."""

    DISPATCHER: Annotated[
        str,
        Setting(
            "turns.E021",
            is_valid=_is_name,
            hint='"embedded", to "procrastinate", or to "package.module.Class"',
        ),
    ] = "embedded"
    """How queued turns get to a process that runs them. `embedded`: the process that serves people. `procrastinate`:
    runners, by PostgreSQL. Or the dotted path of a class of your own."""

    MAX_LIVE: Annotated[int, Setting("turns.E022", 1, 10_000)] = 50
    """How many turns may be busy in one process. What comes on top waits, fairly between users. Next is who has the
    fewest turns at work, then who waits longest. A turn that waits for a person's decision or for another turn does
    not count. So people who decide all at once may bring it above (P4)."""

    MAX_QUEUED: Annotated[int, Setting("turns.E005", 1, 10_000)] = 20
    """How many messages may wait in one conversation; one more is refused (P4)."""

    MAX_MESSAGES_PER_MINUTE: Annotated[int, Setting("turns.E039", 1, 100_000)] = 120
    """Messages of one user in any sixty seconds, by whatever door and over all processes. Counted in the transaction
    that takes them. One more is refused with `too_many_messages` (HTTP 429); a cancel word that cancels something
    does not count."""

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
    """What the chat models of providers can see beside text, where it is not as usual: `["image", "pdf"]`, `["image"]`
    or `[]`. `None` = images and PDF for Anthropic, OpenAI and Google, text alone for a server of your own."""

    ATTACHMENT_STORAGE: Annotated[str, Setting("turns.E053")] = ""
    """Where [attachments](../howto/attachments.md) are kept: the name of an entry of Django's `STORAGES` that no web
    server hands out. Empty = nothing can be attached."""

    ATTACHMENT_TYPES: Annotated[
        Sequence[str],
        Setting(
            "turns.E054",
            is_valid=_are_media_types,
            hint="a list of " + ", ".join(f'"{name}"' for name in (*IMAGE_TYPES, PDF, TEXT)),
        ),
    ] = (*IMAGE_TYPES, PDF, TEXT)
    """Which types of files are taken, as their contents show. `text/plain` is any text in UTF-8, a table or a program
    too."""

    ATTACHMENT_MAX_BYTES: Annotated[int, Setting("turns.E055", 1, 1_000_000_000, kind="bytes")] = (
        20_000_000
    )
    """The largest file that is taken."""

    ATTACHMENT_MAX_PIXELS: Annotated[
        int, Setting("turns.E056", 1, 1_000_000_000, kind="pixels")
    ] = 50_000_000
    """The largest image that is taken, as width times height. It is stored with 2,000 pixels on its longer side at
    most."""

    ATTACHMENT_TIMEOUT: Annotated[float, Setting("turns.E057", 0.1, 600)] = 20.0
    """How long the worker process may take that reads one file."""

    ATTACHMENT_TEXT_LENGTH: Annotated[
        int, Setting("turns.E058", 1, 10_000_000, kind="characters")
    ] = 100_000
    """How much of a document's text a chat model is given that cannot read the file itself."""

    ATTACHMENTS_PER_MESSAGE: Annotated[int, Setting("turns.E059", 1, 100)] = 10
    """How many files a message may have."""

    ATTACHMENT_QUOTA: Annotated[int, Setting("turns.E060", 1, 10**15, kind="bytes")] = 500_000_000
    """How much one user's files may take together, those of all conversations."""

    CANCEL_WORDS: Annotated[
        Sequence[str],
        Setting(
            "turns.E043",
            is_valid=_are_cancel_phrases,
            hint='a list of whole messages, such as ["hou op", "stoppa"]; each needs a letter and has at most 200 characters',
        ),
    ] = ()
    """Whole messages that mean "stop" here, beside the [usual words](../howto/cancel-words.md) of eleven languages.
    Case, accents and punctuation do not matter (C6)."""

    POLL_INTERVAL: Annotated[float, Setting("turns.E007", 0.01, 3_600)] = 1.0
    """How often stored cancel requests and edited limits are read, in case their message was lost (C12)."""

    CANCEL_BOUND: Annotated[float, Setting("turns.E008", 0.01, 60)] = 0.85
    """How long after a cancel a turn is ended whatever its tools do (C1)."""

    SWEEP_INTERVAL: Annotated[float, Setting("turns.E030", 0.01, 3_600)] = 2.0
    """How often each process looks for turns whose process is gone, give or take a fifth (H4)."""

    PROCESS_NAME: Annotated[str, Setting("turns.E051")] = ""
    """What the admin calls this process; empty = its host and its number, or the `--name` of a runner."""

    LEASE_RENEW_INTERVAL: Annotated[float, Setting("turns.E031", 0.01, 3_600)] = 3.0
    """How often a process renews its lease (H4)."""

    LEASE_FENCE_AFTER: Annotated[float, Setting("turns.E032", 0.01, 3_600)] = 10.0
    """How long after the last renewal a process gives its turns up by itself."""

    LEASE_TTL: Annotated[float, Setting("turns.E033", 0.01, 3_600)] = 15.0
    """How long after the last renewal, by the database's clock, others end the turns of a process."""

    PARK_AFTER: Annotated[int | None, Setting("turns.E041", 1, 50, none="never")] = 3
    """After how many turns that ended with their process a conversation is parked, until a person lets it go on.
    `None` = never (H4)."""

    PARK_WINDOW: Annotated[float, Setting("turns.E042", 1, WEEK)] = 600.0
    """Within which time they have to have ended."""

    DRAIN_GRACE: Annotated[float, Setting("turns.E009", 0, 3_600)] = 15.0
    """How long running turns may go on when the server is asked to stop. What still runs then is cancelled with the
    reason `shutdown`."""

    LOOP_WINDOW: Annotated[int, Setting("turns.E010", 1, 10_000)] = 30
    """How many calls of a turn are remembered (A4)."""

    LOOP_WARN_AFTER: Annotated[
        int | None, Setting("turns.E011", 2, 10_000, none="no loop detector")
    ] = 4
    """After how many repetitions the model is warned. `None` switches the detector off (A4)."""

    LOOP_HALT_AFTER: Annotated[int | None, Setting("turns.E012", 3, 10_000, none="never")] = 8
    """After how many repetitions the turn is halted. `None` = never (A4)."""

    MAX_DEPTH: Annotated[int, Setting("turns.E034", 0, 100)] = 3
    """How deep sub-agents may be nested. `0` = none may be set to work (C10)."""

    MAX_CHILDREN: Annotated[int, Setting("turns.E035", 1, 10_000)] = 5
    """How many sub-agents of one turn may be at work at once (C10)."""

    MAX_FAMILY: Annotated[int, Setting("turns.E037", 1, 10_000)] = 20
    """How many sub-agents may be at work at once for one message of a person, at any depth (C10)."""

    MAX_FAMILY_TOTAL: Annotated[int, Setting("turns.E038", 1, 100_000)] = 100
    """How many sub-agents may be set to work in all for one message of a person (C10). Those that have ended count."""

    REPORT_GRACE: Annotated[float, Setting("turns.E036", 0, 3_600)] = 15.0
    """How long a sub-agent whose time is up may take to report what it has. `0` = not at all."""

    SNAPSHOT_MESSAGES: Annotated[int, Setting("turns.E013", 1, 10_000)] = 200
    """How many messages and calls a page gets at first; earlier ones are fetched on demand."""

    HISTORY_CACHE_MEMORY: Annotated[int, Setting("turns.E046", 0, 10**12, kind="bytes")] = (
        64_000_000
    )
    """About how much memory of each process the histories of its conversations may take together. Those that were
    not needed for the longest are dropped. A turn reads only what was added to a history that is kept. A thousand
    messages take about half a megabyte, and their texts. `0` = every turn reads its whole history."""

    TRACE_CONTENT: Annotated[bool, Setting("turns.E063")] = False
    """Whether [traces](../howto/traces.md) hold what people write, chat models answer, and tools are given and return."""


app_settings = TurnsSettings()
