"""The checkpoints at which processes are killed, and the status of a turn whose process died there."""

PLAN = 'slowly one two three\ncall affect {"key": "a"}\ncall affect {"key": "b"}'
NEVER_BEGAN = ("before_claim", "in_claim")
ALREADY_OVER = ("after_end",)
CHECKPOINTS = [
    *NEVER_BEGAN,
    "after_claim",
    "mid_stream",
    "after_reply",
    "before_call_start",
    "after_call_start",
    "before_result",
    "after_result:2",
    "before_end",
    "in_end",
    *ALREADY_OVER,
]
WEB_CHECKPOINTS = ["after_enqueue", "after_cancel_stored"]  # where runners have the turns

OFTEN = ("in_claim", "mid_stream", "after_call_start", "before_result", "in_end")  # in every run


def expected_status(place: str) -> str:
    """Return how the turn ends. What never began runs as if nothing had been, what had begun never again."""
    return "completed" if place in ("after_enqueue", *NEVER_BEGAN, *ALREADY_OVER) else "interrupted"
