"""What belongs to one event loop stands on one object, which no other loop sees."""

import asyncio
from pathlib import Path

import turns
from turns.core import loop_resources


class Pool(list[str]):
    """A resource."""


async def own() -> Pool:
    return loop_resources.of_running_loop().get(Pool)


def test_each_loop_has_its_own_and_any_thread_finds_all():
    with asyncio.Runner() as one, asyncio.Runner() as other:
        first, second = one.run(own()), other.run(own())
        assert first is not second
        assert one.run(own()) is first
        found = loop_resources.of_all_loops(Pool)
        assert {id(pool) for _loop, pool in found} >= {id(first), id(second)}
        assert loop_resources.of_loop(one.get_loop()).pop(Pool) is first
        assert one.run(own()) is not first


def test_no_other_module_keeps_a_table_by_event_loop():
    modules = Path(turns.__file__).parent.rglob("*.py")
    holders = [path.name for path in modules if "WeakKeyDictionary" in path.read_text("utf-8")]
    assert holders == ["loop_resources.py"]
