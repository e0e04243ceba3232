"""Processes that drive many tabs of a site, so that neither the server nor who measures it has to.

`python -m benchmarks.drivers` reads a plan, opens its tabs, and says so. It waits for the moment at which to begin, and
prints what each tab has received.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.tabs import Door, Piece, Tab, Tabs, client_of

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = 2
_SOON = 0.2  # seconds until the common beginning


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What tabs do: each says the same so often, the first time so many seconds after the beginning (`offsets`)."""

    door: Door
    text: str
    turns: int
    offsets: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """What one tab has received, and from when to when it talked."""

    began: float
    ended: float
    pieces: list[Piece]


class Drivers:
    """The tabs of a plan, dealt to some processes and open until the end of the block."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        """Open the tabs."""
        for number in range(PROCESSES):
            if offsets := self._plan.offsets[number::PROCESSES]:
                self._processes.append(self._start(offsets))
        for process in self._processes:
            _said_by(process)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the processes, whatever has happened."""
        for process in self._processes:
            process.kill()
            process.communicate()

    def begin(self) -> float:
        """Let all begin at one moment; return it."""
        moment = time.monotonic() + _SOON
        for process in self._processes:
            assert process.stdin is not None
            print(moment, file=process.stdin, flush=True)
        return moment

    def talks(self) -> list[Talk]:
        """Wait for the end of all talks."""
        return [
            Talk(**talk) for process in self._processes for talk in json.loads(_said_by(process))
        ]

    def _start(self, offsets: Sequence[float]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.drivers"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        print(
            json.dumps({**asdict(self._plan), "offsets": offsets}), file=process.stdin, flush=True
        )
        return process


def _said_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError("A driver of tabs has ended too early.")
    return line


async def _drive(plan: Plan) -> None:
    async with client_of(plan.door) as http, Tabs(plan.door, http, len(plan.offsets)) as tabs:
        print("ready", flush=True)
        begin = float(await asyncio.to_thread(sys.stdin.readline))
        talks = await asyncio.gather(
            *(
                _talk(tab, plan, at=begin + offset)
                for tab, offset in zip(tabs.all, plan.offsets, strict=True)
            )
        )
    print(json.dumps([asdict(talk) for talk in talks]), flush=True)


async def _talk(tab: Tab, plan: Plan, *, at: float) -> Talk:
    await asyncio.sleep(at - time.monotonic())
    began, pieces = time.monotonic(), list[Piece]()
    for _ in range(plan.turns):
        turn_id = await tab.say(plan.text)
        pieces += await tab.until("turn_end", turn_id=turn_id)
    return Talk(began=began, ended=time.monotonic(), pieces=pieces)


if __name__ == "__main__":
    wanted = json.loads(sys.stdin.readline())
    asyncio.run(_drive(Plan(**{**wanted, "door": Door(**wanted["door"])})))
