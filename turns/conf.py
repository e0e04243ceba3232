"""The project's settings: `TURNS_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

from collections.abc import Sequence
from typing import Annotated

from governance import is_cancel_phrase
from governance.app_settings import WEEK, AppSettings, Setting


def _is_name(value: str) -> bool:
    return bool(value.strip())


def _is_url_or_empty(value: str) -> bool:
    return not value or value.startswith(("http://", "https://"))


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
    """Which chat model answers: `local` is built in and needs no key; `anthropic:…`, `openai:…`, `google:…` with the
    name of one of the provider's models; `package.module:factory` is a function of your own that returns one."""

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
    """How queued turns get to a process that runs them: `embedded` (the process that serves people), `procrastinate`
    (runners, by PostgreSQL), or the dotted path of a class of your own."""

    MAX_LIVE: Annotated[int, Setting("turns.E022", 1, 10_000)] = 50
    """How many turns may be busy in one process; what comes on top waits, fairly between users: next is who has the
    fewest turns at work, then who waits longest. A turn that waits for a person's decision or for another turn does
    not count: people who decide all at once may bring it above (P4)."""

    MAX_QUEUED: Annotated[int, Setting("turns.E005", 1, 10_000)] = 20
    """How many messages may wait in one conversation; one more is refused (P4)."""

    MAX_MESSAGES_PER_MINUTE: Annotated[int, Setting("turns.E039", 1, 100_000)] = 120
    """Messages of one user in any sixty seconds, by whatever door and over all processes: counted in the transaction
    that takes them. One more is refused with `too_many_messages` (HTTP 429); a cancel word that cancels something
    does not count."""

    MAX_MESSAGE_LENGTH: Annotated[int, Setting("turns.E006", 1, 100_000_000, kind="characters")] = (
        50_000
    )
    """The longest message."""

    CANCEL_WORDS: Annotated[
        Sequence[str],
        Setting(
            "turns.E043",
            is_valid=_are_cancel_phrases,
            hint='a list of whole messages, such as ["hou op", "stoppa"]; each needs a letter and has at most 200 characters',
        ),
    ] = ()
    """Whole messages that mean "stop" here, beside the [usual words](../howto/cancel-words.md) of eleven languages;
    case, accents and punctuation do not matter (C6)."""

    POLL_INTERVAL: Annotated[float, Setting("turns.E007", 0.01, 3_600)] = 1.0
    """How often stored cancel requests and edited limits are read, in case their message was lost (C12)."""

    CANCEL_BOUND: Annotated[float, Setting("turns.E008", 0.01, 60)] = 0.85
    """How long after a cancel a turn is ended whatever its tools do (C1)."""

    SWEEP_INTERVAL: Annotated[float, Setting("turns.E030", 0.01, 3_600)] = 2.0
    """How often each process looks for turns whose process is gone, give or take a fifth (H4)."""

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
    """How long running turns may go on when the server is asked to stop; what still runs then is cancelled with the
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
    """How many sub-agents may be set to work for one message of a person in all, also one after the other (C10)."""

    REPORT_GRACE: Annotated[float, Setting("turns.E036", 0, 3_600)] = 15.0
    """How long a sub-agent whose time is up may take to report what it has. `0` = not at all."""

    SNAPSHOT_MESSAGES: Annotated[int, Setting("turns.E013", 1, 10_000)] = 200
    """How many messages a page gets at first; earlier ones are fetched on demand."""


app_settings = TurnsSettings()
