"""Claims: which tool result belongs to which tool call, where a history left them apart."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from turns.core.messages import AttachmentBlock, Message, TextBlock, ToolResultBlock
from turns.core.repairs import RepairKind, RepairRecord

# A call is known by the place of its message and its id: ids may come again in later turns.
CallKey = tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundResult:
    """A result and where it was: its message's place and its index in there; -1 for nowhere."""

    block: ToolResultBlock
    turn_id: str | None
    place: int = -1
    index: int = -1
    is_behind_text: bool = False


def assign(cleaned: Sequence[Message], record: RepairRecord) -> Mapping[CallKey, list[FoundResult]]:
    """Return the results of each call, in the order of their claim.

    First those that stand where they belong. Then each late or displaced one, if exactly one call
    is open for it. What stays without a call is recorded as a repair: it will be removed.
    """
    positions = _positions_of_calls(cleaned)
    replies_to = _replies(cleaned)
    assigned: dict[CallKey, list[FoundResult]] = defaultdict(list)
    displaced: list[tuple[FoundResult, Sequence[int]]] = []
    for found in _results(cleaned):
        every = positions.get(found.block.tool_use_id, ())
        named = _same_turn(cleaned, every, found=found)
        owner = replies_to.get(found.place)
        if owner is not None and owner in (named or every):
            assigned[owner, found.block.tool_use_id].append(found)
        else:
            displaced.append((found, named or [place for place in every if place < found.place]))
    for found, candidates in displaced:
        _claim(found, candidates, assigned=assigned, record=record)
    return assigned


def _claim(
    found: FoundResult,
    candidates: Sequence[int],
    *,
    assigned: dict[CallKey, list[FoundResult]],
    record: RepairRecord,
) -> None:
    """Give a displaced result to the one open candidate; where there are two, do not guess."""
    tool_id = found.block.tool_use_id
    open_calls = [place for place in candidates if _is_open(assigned.get((place, tool_id), ()))]
    if len(open_calls) == 1:
        assigned[open_calls[0], tool_id].append(found)
        return
    kind = RepairKind.DUPLICATE_RESULT if candidates else RepairKind.UNKNOWN_RESULT
    record.add(RepairKind.AMBIGUOUS_RESULT if open_calls else kind, tool_id, turn_id=found.turn_id)


def _is_open(results: Sequence[FoundResult]) -> bool:
    """Return whether a call with these results takes another: a synthetic one gives way."""
    return all(known.block.is_synthetic for known in results)


def _positions_of_calls(cleaned: Sequence[Message]) -> Mapping[str, list[int]]:
    positions: dict[str, list[int]] = defaultdict(list)
    for place, message in enumerate(cleaned):
        for call in message.tool_uses:
            positions[call.id].append(place)
    return positions


def _replies(cleaned: Sequence[Message]) -> Mapping[int, int]:
    """Return, for each user message directly after calls, the place of those calls.

    Results may be split over several messages; what follows a text is no direct reply any more.
    """
    replies: dict[int, int] = {}
    owner: int | None = None
    for place, message in enumerate(cleaned):
        if message.role == "assistant":
            owner = place if message.tool_uses else None
        elif owner is not None:
            replies[place] = owner
            owner = None if message.visible else owner
    return replies


def _results(cleaned: Sequence[Message]) -> Iterator[FoundResult]:
    for place, message in enumerate(cleaned):
        is_behind_text = False
        for index, block in enumerate(message.content):
            if isinstance(block, ToolResultBlock):
                yield FoundResult(
                    block=block,
                    turn_id=message.turn_id,
                    place=place,
                    index=index,
                    is_behind_text=is_behind_text,
                )
            is_behind_text = is_behind_text or isinstance(block, TextBlock | AttachmentBlock)


def _same_turn(
    cleaned: Sequence[Message], positions: Sequence[int], *, found: FoundResult
) -> list[int]:
    if found.turn_id is None:
        return []
    return [place for place in positions if cleaned[place].turn_id == found.turn_id]
