"""Settings of turns: `TURNS_<NAME>`, read on every access so that an override in a test simply works."""

from typing import Any

from django.conf import settings


def _read(name: str, default: Any) -> Any:
    return getattr(settings, f"TURNS_{name}", default)


class TurnsSettings:
    """One property for each setting: its type, default and meaning. Spans are seconds."""

    @property
    def CHAT_MODEL(self) -> str:
        """Which chat model answers: `local`, or a dotted path to a factory of one."""
        return str(_read("CHAT_MODEL", "local"))

    @property
    def INSTRUCTIONS(self) -> str:
        """What every chat model is told first."""
        return str(_read("INSTRUCTIONS", ""))

    @property
    def TURN_TIMEOUT(self) -> float | None:
        """How long a turn may take in all (T10); 0 or None = no limit."""
        return _read("TURN_TIMEOUT", 1800.0) or None

    @property
    def STEP_LIMIT(self) -> int:
        """How many model requests a turn may make (T10)."""
        return int(_read("STEP_LIMIT", 50))

    @property
    def MAX_QUEUED(self) -> int:
        """How many turns may wait in one conversation (P4)."""
        return int(_read("MAX_QUEUED", 20))

    @property
    def MAX_MESSAGE_LENGTH(self) -> int:
        """The longest message, in characters."""
        return int(_read("MAX_MESSAGE_LENGTH", 50_000))

    @property
    def POLL_INTERVAL(self) -> float:
        """How often stored cancel requests and limits are read, in case a nudge was lost (C12)."""
        return float(_read("POLL_INTERVAL", 1.0))

    @property
    def CANCEL_BOUND(self) -> float:
        """How long after a cancel a turn is ended whatever its tools do (C1)."""
        return float(_read("CANCEL_BOUND", 0.85))

    @property
    def DRAIN_GRACE(self) -> float:
        """How long running turns may go on when the server is asked to stop."""
        return float(_read("DRAIN_GRACE", 15.0))

    @property
    def LOOP_WINDOW(self) -> int:
        """How many calls of a turn the loop detector remembers (A4)."""
        return int(_read("LOOP_WINDOW", 30))

    @property
    def LOOP_WARN_AFTER(self) -> int | None:
        """After how many repetitions the model is warned; None switches the detector off."""
        value: int | None = _read("LOOP_WARN_AFTER", 4)
        return value

    @property
    def LOOP_HALT_AFTER(self) -> int | None:
        """After how many repetitions the turn is halted; None = never."""
        value: int | None = _read("LOOP_HALT_AFTER", 8)
        return value

    @property
    def SNAPSHOT_MESSAGES(self) -> int:
        """How many messages a snapshot holds; earlier ones are fetched on demand."""
        return int(_read("SNAPSHOT_MESSAGES", 200))


app_settings = TurnsSettings()
