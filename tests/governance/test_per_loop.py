"""What belongs to one event loop is seen by no other loop."""

import asyncio
from pathlib import Path

import pytest

from governance.per_loop import PerLoop
from tests.support import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pools() -> PerLoop[list[str]]:
    return PerLoop()


def test_each_loop_has_its_own_and_any_thread_finds_all(pools):
    async def own() -> list[str]:
        return pools.get_or_make(list)

    async def take() -> list[str] | None:
        return pools.pop()

    with asyncio.Runner() as one, asyncio.Runner() as other:
        first, second = one.run(own()), other.run(own())
        assert first is not second
        assert one.run(own()) is first
        assert {id(pool) for pool in pools.values()} == {id(first), id(second)}
        assert pools.get(one.get_loop()) is first
        assert one.run(take()) is first
        assert one.run(own()) is not first


async def test_from_a_thread_each_running_loop_is_called_with_its_own(pools):
    called = asyncio.Event()
    mine = ["mine"]
    pools.set(mine)
    seen = []

    def see(pool: list[str]) -> None:
        seen.append(pool)
        called.set()

    await asyncio.to_thread(pools.call_soon, see)
    await asyncio.wait_for(called.wait(), PATIENCE)
    assert seen == [mine]


def test_no_other_module_keeps_a_table_by_event_loop():
    modules = (
        path
        for app in ("console", "governance", "turns", "webchat")
        for path in (ROOT / app).rglob("*.py")
    )
    holders = [path.name for path in modules if "WeakKeyDictionary" in path.read_text("utf-8")]
    assert holders == ["per_loop.py"]
