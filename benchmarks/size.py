"""How much one run measures."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The numbers of a run. The bars apply to `FULL`."""

    turns: int  # of each row that times single turns
    turns_at_once: int  # of the row that cancels turns with many calls
    calls_of_each: int  # an answer may request at most 100
    streams: int
    seconds_of_stream: int
    sockets: int  # and live turns, of the rows of memory
    messages: tuple[int, int]  # before a turn of a short and of a long conversation
    past_calls: int  # in the database, for the pages of the admin


FULL = Size(
    turns=100,
    turns_at_once=2,
    calls_of_each=100,
    streams=100,
    seconds_of_stream=10,
    sockets=200,
    messages=(10, 10_000),
    past_calls=1_000_000,
)
QUICK = Size(
    turns=2,
    turns_at_once=2,
    calls_of_each=5,
    streams=5,
    seconds_of_stream=1,
    sockets=5,
    messages=(10, 100),
    past_calls=3_000,
)
