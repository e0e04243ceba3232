"""The tokens of a turn: what its requests have cost, and what is left of its limits."""

from turns.core.chat_model import Reply, StopReason, Usage
from turns.core.texts import FAMILY_LIMIT, TOKEN_LIMIT
from turns.core.turns import TurnEnding, TurnStatus


class TokenBudget:
    """Counts what a turn uses, in and out, against its limit, and with its family against that one's. None = no limit.

    `others` is what the rest of the family has used, as far as it is known.
    """

    def __init__(self, limit: int | None = None, *, family_limit: int | None = None) -> None:
        self.limit = limit
        self.family_limit = family_limit
        self.others = 0
        self.usage: dict[str, int] = {}

    @property
    def left(self) -> int | None:
        """How many tokens the turn may still use; None where it has no limit."""
        used = sum(self.usage.values())
        lefts = []
        if self.limit is not None:
            lefts.append(self.limit - used)
        if self.family_limit is not None:
            lefts.append(self.family_limit - used - self.others)
        return max(min(lefts), 0) if lefts else None

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
        """Return the ending of a turn that has used up its limit, or has none left of its family's."""
        if self.limit is not None and sum(self.usage.values()) >= self.limit:
            sentence = TOKEN_LIMIT % {"limit": self.limit}
        else:
            sentence = FAMILY_LIMIT % {"limit": self.family_limit}
        return TurnEnding(
            status=TurnStatus.FAILED,
            error_code="token_limit",
            error_message=sentence,
        )
