"""The project's settings: `TURNS_<NAME>` in Django's settings is `app_settings.<NAME>` here, read on access."""

from collections.abc import Sequence

from governance.app_settings import AppSettings


class TurnsSettings(AppSettings):
    """Every setting with its type, its default and what it is for. Seconds unless the name says otherwise."""

    PREFIX = "TURNS_"

    CHAT_MODEL: str = "local"
    """Which chat model answers: `local` (built in), `anthropic:…`, `openai:…` or `google:…` with the name of one of
    the provider's models, or the dotted path of a factory of one."""

    CHAT_MODEL_BASE_URL: str = ""
    """The server that `openai:…` asks instead of OpenAI, if it speaks the same API; else OPENAI_BASE_URL counts."""

    CHAT_MODEL_FIRST_BYTE_TIMEOUT: float = 120.0
    """How long a provider may take to begin its answer."""

    CHAT_MODEL_IDLE_TIMEOUT: float = 120.0
    """How long a provider may be silent in the middle of its answer."""

    CHAT_MODEL_RETRIES: int = 3
    """How often a request is repeated that failed before the model said anything; 0 = never."""

    CHAT_MODEL_RETRY_MAX_WAIT: float = 60.0
    """The longest wait before a request is repeated; a provider that asks for a longer one is not waited for."""

    INSTRUCTIONS: str = ""
    """What every chat model is told first."""

    MAX_TOOLS: int = 256
    """How many tools a chat model is offered; a provider may take fewer."""

    MAX_TOOL_TOKENS: int = 40_000
    """About how many tokens of each request the tools may take that a chat model is offered."""

    TURN_TIMEOUT: float | None = 1800.0
    """How long a turn may take in all; 0 or None = no limit (T10)."""

    STEP_LIMIT: int = 50
    """How many model requests a turn may make (T10)."""

    DISPATCHER: str = "embedded"
    """How queued turns get to a process that runs them: `embedded` (the one that serves people), `procrastinate`
    (runners, by PostgreSQL), or the dotted path of a class of your own."""

    MAX_LIVE: int = 50
    """How many turns may be busy in one process; those that wait for a person or another turn do not count (P4)."""

    MAX_QUEUED: int = 20
    """How many turns may wait in one conversation; one more message is refused (P4)."""

    MAX_MESSAGES_PER_MINUTE: int = 120
    """Messages of one user in any minute, over all processes; one more is refused."""

    MAX_MESSAGE_LENGTH: int = 50_000
    """The longest message, in characters."""

    CANCEL_WORDS: Sequence[str] = ()
    """Messages that mean "stop" here, beside the usual words of eleven languages (C6)."""

    POLL_INTERVAL: float = 1.0
    """How often stored cancel requests and limits are read, in case a nudge was lost (C12)."""

    CANCEL_BOUND: float = 0.85
    """How long after a cancel a turn is ended whatever its tools do (C1)."""

    SWEEP_INTERVAL: float = 2.0
    """How often each process looks for turns whose process is gone, give or take a fifth (H4)."""

    LEASE_RENEW_INTERVAL: float = 3.0
    """How often a process renews its lease (H4)."""

    LEASE_FENCE_AFTER: float = 10.0
    """How long after the last renewal a process gives up its turns by itself."""

    LEASE_TTL: float = 15.0
    """How long after the last renewal, by the database's clock, others end the turns of a process."""

    PARK_AFTER: int | None = 3
    """After how many turns that ended with their process a conversation is parked; None = never (H4)."""

    PARK_WINDOW: float = 600.0
    """Within which time they have to have ended."""

    DRAIN_GRACE: float = 15.0
    """How long running turns may go on when the server is asked to stop."""

    LOOP_WINDOW: int = 30
    """How many calls of a turn the loop detector remembers (A4)."""

    LOOP_WARN_AFTER: int | None = 4
    """After how many repetitions the model is warned; None switches the detector off (A4)."""

    LOOP_HALT_AFTER: int | None = 8
    """After how many repetitions the turn is halted; None = never (A4)."""

    MAX_DEPTH: int = 3
    """How deep sub-agents may be nested; 0 = none may be started (C10)."""

    MAX_CHILDREN: int = 5
    """How many sub-agents of one turn may be at work at once (C10)."""

    MAX_FAMILY: int = 20
    """How many sub-agents may be at work at once for one message of a person, at any depth (C10)."""

    MAX_FAMILY_TOTAL: int = 100
    """How many sub-agents may be set to work for one message of a person in all, also one after the other (C10)."""

    REPORT_GRACE: float = 15.0
    """How long a sub-agent whose time is up may take to report what it has; 0 = not at all."""

    SNAPSHOT_MESSAGES: int = 200
    """How many messages a page gets at first; earlier ones are fetched on demand."""


app_settings = TurnsSettings()
