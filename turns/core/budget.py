"""The tokens of a turn: what its requests have cost, and what is left of its limit."""

from turns.core.chat_model import Reply, StopReason, Usage
from turns.core.ports import TurnEnding
from turns.core.turns import TurnStatus


class TokenBudget:
    """Counts what a turn uses, in and out, against its limit; None = no limit."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.usage: dict[str, int] = {}

    @property
    def left(self) -> int | None:
        """How many tokens the turn may still use; None where it has no limit."""
        return None if self.limit is None else max(self.limit - sum(self.usage.values()), 0)

    @property
    def is_used_up(self) -> bool:
        """Whether no further request may be made."""
        return self.left == 0

    def has_cut_off(self, reply: Reply) -> bool:
        """Return whether an answer ends where it does for want of tokens."""
        return reply.stop_reason is StopReason.LENGTH and self.is_used_up

    def take(self, usage: Usage) -> None:
        """Add what a request has cost."""
        for name, tokens in (
            ("input_tokens", usage.input_tokens),
            ("output_tokens", usage.output_tokens),
        ):
            if tokens:
                self.usage[name] = self.usage.get(name, 0) + tokens

    def ending(self) -> TurnEnding:
        """Return the ending of a turn that has used up its limit."""
        return TurnEnding(
            status=TurnStatus.FAILED,
            error_code="token_limit",
            error_message=f"The turn was ended: it has used up the {self.limit} tokens that its agent may use in one "
            "turn. Send “go on” to continue in a new turn, or ask for less at once.",
        )
